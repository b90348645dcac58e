//go:build !linux

package peering

import (
	"net"
	"time"
)

// setUserTimeout has no portable form: here lost data is noticed by the kernel's own count of retransmissions.
func setUserTimeout(*net.TCPConn, time.Duration) {}

// inFlightOn is not known here.
func inFlightOn(*net.TCPConn) bool { return false }

// roundTrip is not read here.
func roundTrip(*net.TCPConn) time.Duration { return 0 }
