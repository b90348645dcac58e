// Package packages installs the packages that scripts/package.sh makes into machines with a systemd of their own: a Debian out of
// debootstrap, booted by systemd-nspawn with a network and cgroups that are its own. `scripts/test.sh packages` runs it, as root.
package packages
