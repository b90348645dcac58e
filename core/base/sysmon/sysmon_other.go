//go:build !linux

// Package sysmon is about Linux.
package sysmon

import "time"

// Slacken does nothing.
func Slacken(time.Duration) error { return nil }

// Exactly calls start.
func Exactly(start func() error) error { return start() }
