# One row a variant. Versions live in the Dockerfile; a row holds only what differs.
# Always called with `-f docker-bake.hcl` (scripts/build.py does): a bare `bake` would merge docker-compose.yml too.

variable "IMAGE" { default = "pytorch-cuda:v2.7" }

target "_common" {
  dockerfile = "Dockerfile"
  target     = "runtime"
  platforms  = ["linux/amd64"]
}

# The article's image: Ubuntu 20.04 + CUDA 12.1 runtime, PyTorch with its own CUDA 12.6.
target "default" {
  inherits = ["_common"]
  tags     = [IMAGE]
}

# Debian 13 made on the spot (scripts/base.py): where no image registry can be reached, and in CI.
target "embedded" {
  inherits = ["_common"]
  tags     = ["${IMAGE}-embedded"]
  contexts = { base = "docker-image://pytorch-cuda-base:embedded" }
  args = {
    VARIANT      = "embedded"
    BASE_NAME    = "Debian 13, made on the spot by mmdebstrap"
    BASE_CUDA    = ""
    PYTHON_FROM  = "distribution"
    DATASET_FROM = "distribution"
  }
}

# ---- for tests only ----
target "embedded-thin" {
  inherits = ["embedded"]
  target   = "thin"
  tags     = ["${IMAGE}-embedded-thin"]
}

target "embedded-test" {
  inherits = ["embedded"]
  target   = "test"
  tags     = ["${IMAGE}-embedded-test"]
}

# Debian 11: glibc 2.31 and OpenSSH 8.4, the nearest to Ubuntu 20.04 that can be made here.
target "_glibc231" {
  inherits = ["embedded"]
  contexts = { base = "docker-image://pytorch-cuda-base:glibc231" }
}

target "glibc231-thin" {
  inherits = ["_glibc231"]
  target   = "thin"
  tags     = ["pytorch-cuda:glibc231-thin"]
}

target "glibc-check" {
  inherits = ["_glibc231"]
  target   = "glibc-check"
  contexts = { checked = "docker-image://${IMAGE}-embedded" }
  tags     = ["pytorch-cuda-test:glibc-check"]
}

target "browser" {
  inherits = ["embedded"]
  target   = "browser"
  tags     = ["pytorch-cuda-test:browser"]
}

# ---- VS Code in the browser: `<variant>-code`, one word a variant ----
target "_code" {
  name     = "${row}-code"
  matrix   = { row = ["default", "embedded"] }
  inherits = [row]
  target   = "code"
  tags     = [row == "default" ? "${IMAGE}-code" : "${IMAGE}-${row}-code"]
  contexts = { code-lock = "requirements/code" }
  args     = { VARIANT = row == "default" ? "code" : "${row}-code" }
}
