# The front door: every target is one command, and what has a condition is a program in scripts/.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
PYTHON ?= python3

.PHONY: help
help: ## list what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## build the image if missing, start it, print the JupyterLab URL (PORT= BIND= NAME= IMAGE= VARIANT=)
	@$(PYTHON) -m scripts.run

.PHONY: stop
stop: ## stop the container; `make run` starts it again with all that is in it
	@$(PYTHON) -m scripts.stop

.PHONY: logs
logs: ## show what the container says
	@$(PYTHON) -m scripts.logs

.PHONY: shell
shell: ## open a shell in the running container, as its user
	@$(PYTHON) -m scripts.shell

.PHONY: ssh
ssh: ## log into the running container over SSH
	@$(PYTHON) -m scripts.ssh

.PHONY: ssh-config
ssh-config: ## print the entry for ~/.ssh/config, for VS Code Remote-SSH
	@$(PYTHON) -m scripts.ssh config

.PHONY: up
up: ## start the service of docker-compose.yml, with the GPU if there is one (settings in .env)
	@$(PYTHON) -m scripts.up

.PHONY: down
down: ## stop and remove what `make up` started; the volumes and ./code stay
	@$(PYTHON) -m scripts.down

.PHONY: doctor
doctor: ## say what is wrong on this machine and in the container, and what mends it
	@$(PYTHON) -m scripts.host_doctor

.PHONY: train
train: ## train on Fashion-MNIST; results in ./code/runs/<name> (RUN=name TRAIN_ARGS="--epochs 3")
	@$(PYTHON) -m scripts.train

.PHONY: test
test: ## build the images and run the tests (SUITE="static unit" runs only those)
	@$(PYTHON) -m scripts.test

.PHONY: test-slow
test-slow: ## run the tests that take longer
	@$(PYTHON) -m scripts.test slow

.PHONY: build
build: ## build the image, from the cache where nothing changed (VARIANT=default or embedded)
	@$(PYTHON) -m scripts.build

.PHONY: lint
lint: ## run every checker: ruff, mypy, hadolint, shellcheck, yamllint
	@$(PYTHON) -m scripts.venv -m scripts.lint

.PHONY: lock
lock: ## resolve requirements/*.in into the hashed locks again
	@$(PYTHON) -m scripts.venv -m scripts.lock

.PHONY: clean
clean: ## remove the containers, the images, .venv and build logs; ./code and the home volume stay
	@$(PYTHON) -m scripts.clean
