# shellcheck shell=sh
# /etc/profile has just given PATH a value of its own; its first line, which is ours, remembered the one before.
. /opt/pytorch-cuda/lib/session.sh
if [ -n "${_path_before_profile-}" ]; then
    PATH=$_path_before_profile
    export PATH
fi
unset _path_before_profile
