//go:build !linux

package daemon

func forgetProgram() {}
