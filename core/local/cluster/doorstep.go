package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/base/process"
)

// ListenerVariable, in the environment of an engine, is the number of a file that it inherits: the socket that listens at its API server's
// address of loopback. It stays open between one engine and the next, so who connects meanwhile is not refused: he waits in it.
const ListenerVariable = "KITH_API_LISTENER"

// wakePatience is how long who connected waits for an API server that wakes up.
const wakePatience = time.Minute

// takeDoorstep takes the API server's address, for all engines that are started from now on.
func (c *child) takeDoorstep() {
	if c.api == "" || c.doorstep != nil {
		return
	}
	listener, err := net.Listen("tcp", c.api)
	if err != nil {
		c.log.Info("the API server's address is not held: who connects while "+c.what+" starts or sleeps is refused", "err", err)
		return
	}
	c.doorstep = listener.(*net.TCPListener)
}

// shareDoorstep takes the address of an engine that was started by another kithd, and listens there already. Where the kernel does not let
// it, the address is taken when that engine has ended.
func (c *child) shareDoorstep(engine *process.Process) {
	if c.api == "" || c.doorstep != nil {
		return
	}
	listener, err := engine.Listener(c.api)
	if err != nil { // it may not listen yet, or at an older kernel
		c.log.Info("the API server's address is not held: who connects in the moment in which "+c.what+" ends is refused", "err", err)
		return
	}
	c.doorstep = listener
}

// leaveDoorstep has who connects be refused.
func (c *child) leaveDoorstep() {
	if c.doorstep != nil {
		c.doorstep.Close()
		c.doorstep = nil
	}
}

// inherit are the files and the environment that an engine is started with.
func (c *child) inherit() (files []*os.File, env []string) {
	if c.doorstep == nil {
		return nil, nil
	}
	file, err := c.doorstep.File()
	if err != nil {
		c.log.Warn("the API server's address is not passed on", "err", err)
		c.leaveDoorstep()
		return nil, nil
	}
	return []*os.File{file}, append(os.Environ(), ListenerVariable+"=3")
}

// watchDoorstep wakes the engine when somebody connects, until stop is called. Who did is connected to the engine when that is ready; who comes
// after him waits for the engine itself.
func (c *child) watchDoorstep(ctx context.Context) (stop func()) {
	if c.doorstep == nil || c.doorstep.SetDeadline(time.Time{}) != nil {
		return func() {}
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			conn, err := c.doorstep.Accept()
			if err != nil {
				return
			}
			if gone(conn) { // a part of the engine that ended, for example
				conn.Close()
				continue
			}
			c.Wake("a connection of " + conn.RemoteAddr().String() + " to its API server")
			go c.leadIn(ctx, conn)
			return
		}
	})
	return func() {
		_ = c.doorstep.SetDeadline(time.Now())
		watching.Wait()
	}
}

// gone reports whether who connected has hung up already.
func gone(conn net.Conn) (hungUp bool) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	if err := raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: hangUp}}, 0)
		hungUp = err == nil && n > 0
	}); err != nil {
		return true
	}
	return hungUp
}

// leadIn connects who came with the API server when it is ready, and hangs up when it does not become so.
func (c *child) leadIn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	soon, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	if err := c.WaitReady(soon); err != nil {
		return
	}
	api, err := (&net.Dialer{}).DialContext(soon, "tcp", c.api)
	if err != nil {
		return
	}
	defer api.Close()
	defer context.AfterFunc(ctx, func() {
		conn.Close()
		api.Close()
	})()
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // either may hang up
		_ = to.(*net.TCPConn).CloseWrite()
	}
	var back sync.WaitGroup
	back.Go(func() { pass(conn, api) })
	pass(api, conn)
	back.Wait()
}
