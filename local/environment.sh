# shellcheck shell=bash
# Puts aside what a person's shell or another program may have left in the environment and that would
# change what the scripts here do. To be sourced before anything else.

set +o posix +o noclobber +o noglob
shopt -u failglob nullglob nocasematch
# With CDPATH, `cd` prints the folder it has found, or goes to another. BASH_ENV is run by each script.
unset -f cd
unset CDPATH BASH_ENV GREP_OPTIONS POSIXLY_CORRECT
# Settings for another Python, or for a person who sits before it.
unset PYTHONHOME PYTHONSAFEPATH PYTHONINSPECT
# Text is UTF-8, whatever the locale is.
export PYTHONUTF8=${PYTHONUTF8:-1}
