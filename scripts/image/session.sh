# shellcheck shell=sh
# Read at the top of /etc/bash.bashrc and by login shells: gives a session its environment, once.
# What the engine starts has it already, and PYTORCH_CUDA_SESSION with it (the image's ENV); sshd gives its sessions an
# empty one. A shell inside a session has it too, and keeps what its parent changed: PATH of an activated environment.
if [ -z "${PYTORCH_CUDA_SESSION-}" ] && [ -r /run/pytorch-cuda/environment.sh ]; then
    . /run/pytorch-cuda/environment.sh
    # In a login shell: what it goes back to.
    if [ -n "${_path_before_profile+set}" ]; then _path_before_profile=$PATH; fi
fi
# The function behind `conda activate`, which no shell inherits. It would also put conda's own folder first on PATH.
if [ -r /opt/conda/etc/profile.d/conda.sh ]; then
    _path_before_conda=$PATH
    . /opt/conda/etc/profile.d/conda.sh
    PATH=$_path_before_conda
    unset _path_before_conda
fi
