//go:build !linux

package web

import "net"

// owner is not told here: the secrets alone decide.
func owner(net.Conn) (uid int, err error) { return anybody, nil }
