#!/bin/sh
# Reports whether a Kith may start on what is stored, as `kithd check-data` does, for packages: their first script runs before there
# is a kithd to ask. Exit status 0: it may; 1: it may not, and what is printed says why and what to do. Nothing is changed.
# usage: check-data.sh KITH LAYOUT KUBERNETES [DIR]     such as check-data.sh v0.12.0 1 1.36; DIR: the configured dataDir, if none is given
set -eu
kith=$1 layout=$2 minor=${3#1.} dir=${4:-}
refuse() {
	echo "kith: $1" >&2
	exit 1
}
damaged() { refuse "$1/version, which says which Kith wrote there last, is damaged. Nothing was changed: bring it back from a backup, or delete it if no newer Kith than $kith has run here"; }
value() { sed -n "s/^$2=//p" "$1/version" | tail -n 1 | tr -cd '[:graph:]'; }
number() { case $1 in '' | 0 | *[!0-9]* | ??????????*) return 1 ;; esac; }

if [ -z "$dir" ] && [ -r /etc/kith/config.yaml ]; then
	dir=$(sed -n "/^dataDir:/{s/^dataDir:[[:space:]]*//;s/^\"\([^\"]*\)\".*/\1/;s/^'\([^']*\)'.*/\1/;s/[[:space:]][[:space:]]*#.*//;s/[[:space:]]*$//;p;}" /etc/kith/config.yaml | tail -n 1)
fi
dir=${dir:-/var/lib/kith}

for folder in "$dir" "$dir/k8s"; do
	kubernetes='' wrote=''
	if [ -e "$folder/version" ]; then
		number "$(value "$folder" LAYOUT)" || damaged "$folder"
		wrote=$(value "$folder" KITH)
		kubernetes=$(value "$folder" KUBERNETES)
		[ "$(value "$folder" LAYOUT)" -le "$layout" ] ||
			refuse "$folder was written by a newer Kith, $wrote; $kith does not know its layout. Nothing was changed: install $wrote or a newer one, or purge Kith first, which ends all pods and deletes the cluster"
	elif [ -e "$folder/db/state.db" ]; then
		kubernetes=1.36 # of a Kith from before there were such files
	fi
	[ "$folder" = "$dir/k8s" ] && [ -n "$kubernetes" ] || continue
	case $kubernetes in 1.*) ;; *) damaged "$folder" ;; esac
	number "${kubernetes#1.}" || damaged "$folder"
	[ "$minor" -ge "${kubernetes#1.}" ] ||
		refuse "the cluster in $folder was written by Kubernetes $kubernetes (Kith ${wrote:-of an unknown version}), and Kith $kith has 1.$minor: Kubernetes does not go back to an older minor version. Nothing was changed: install a Kith with Kubernetes $kubernetes or the one after it"
	[ "$minor" -le $((${kubernetes#1.} + 1)) ] ||
		refuse "the cluster in $folder was written by Kubernetes $kubernetes (Kith ${wrote:-of an unknown version}), and Kith $kith has 1.$minor: Kubernetes goes up one minor version at a time. Nothing was changed: install a Kith with Kubernetes 1.$((${kubernetes#1.} + 1)) first, wait until \`kith status\` says ready, and install this one then"
done
