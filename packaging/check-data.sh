#!/bin/sh
# Reports whether a Kith may start on what is stored, as `kithd check-data` does, for packages: their first script runs before there
# is a kithd to ask. Exit status 0: it may; 1: it may not, and what is printed says why and what to do. Nothing is changed.
# usage: check-data.sh KITH LAYOUT KUBERNETES [DIR]     such as check-data.sh v0.12.0 1 1.36
set -eu
kith=$1 layout=$2 minor=${3#1.} dir=${4:-/var/lib/kith}
refuse() {
	echo "kith: $1" >&2
	exit 1
}
value() { sed -n "s/^$2=//p" "$1/version" | tail -n 1; }
number() { case $1 in '' | *[!0-9]*) return 1 ;; esac; }

for folder in "$dir" "$dir/k8s"; do
	kubernetes='' wrote=''
	if [ -e "$folder/version" ]; then
		number "$(value "$folder" LAYOUT)" || refuse "$folder/version is damaged: bring it back from a backup, or delete it if no newer Kith than $kith has run here"
		wrote=$(value "$folder" KITH)
		kubernetes=$(value "$folder" KUBERNETES)
		[ "$(value "$folder" LAYOUT)" -le "$layout" ] ||
			refuse "$folder was written by a newer Kith, $wrote; $kith does not know its layout. Nothing was changed: install $wrote or a newer one"
	elif [ -e "$folder/db/state.db" ]; then
		kubernetes=1.36 # of a Kith from before there were such files
	fi
	[ "$folder" = "$dir/k8s" ] && [ -n "$kubernetes" ] || continue
	number "${kubernetes#1.}" || refuse "$folder/version is damaged: bring it back from a backup, or delete it if no newer Kith than $kith has run here"
	[ "$minor" -ge "${kubernetes#1.}" ] ||
		refuse "the cluster in $folder was written by Kubernetes $kubernetes ($wrote), and Kith $kith has 1.$minor: Kubernetes does not go back to an older minor version. Nothing was changed: install a Kith with Kubernetes $kubernetes or the one after it"
	[ "$minor" -le $((${kubernetes#1.} + 1)) ] ||
		refuse "the cluster in $folder was written by Kubernetes $kubernetes ($wrote), and Kith $kith has 1.$minor: Kubernetes goes up one minor version at a time. Nothing was changed: install a Kith with Kubernetes 1.$((${kubernetes#1.} + 1)) first, wait until \`kith status\` says ready, and install this one then"
done
