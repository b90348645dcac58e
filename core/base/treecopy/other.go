//go:build !linux

package treecopy

import (
	"context"
	"errors"
	"io"
)

var errLinux = errors.New("folders are copied on Linux only")

// Send is for Linux.
func Send(_ context.Context, conn io.ReadWriteCloser, _ string, _ Options) (Stats, error) {
	conn.Close()
	return Stats{}, errLinux
}

// Takes is for Linux.
func Takes(context.Context, string) (int64, error) { return 0, errLinux }

// Receive is for Linux.
func Receive(_ context.Context, conn io.ReadWriteCloser, _ string, _ Limits) (Stats, error) {
	conn.Close()
	return Stats{}, errLinux
}
