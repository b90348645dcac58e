//go:build !linux

package memory

func forgetProgram() {}
