package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// burn computes with so many threads at once, and never ends.
func burn(args []string) error {
	n, err := number(args)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(n)
	for range n {
		go func() {
			for i := uint64(1); ; i++ {
				runtime.KeepAlive(i * i)
			}
		}()
	}
	select {}
}

// threads wants so many threads at once, and says that it has them. Where it gets none any more, Go ends the program.
func threads(args []string) error {
	n, err := number(args)
	if err != nil {
		return err
	}
	var have atomic.Int32
	for range n {
		go func() {
			runtime.LockOSThread()
			have.Add(1)
			select {}
		}()
	}
	for have.Load() < int32(n) {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("has", n, "threads")
	return nil
}

// spill writes so many MiB into a file.
func spill(args []string) error {
	if len(args) != 2 {
		return errUse
	}
	n, err := number(args[1:])
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, 1<<20); n > 0; n-- {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// pair counts in two files for so many seconds, as a database writes its log and then its table: each number is in the first before it is in the
// second, so at no moment is the second ahead, or more than one behind.
func pair(args []string) error {
	if len(args) != 3 {
		return errUse
	}
	seconds, err := number(args[2:])
	if err != nil {
		return err
	}
	var files [2]*os.File
	for i := range files {
		if files[i], err = os.Create(args[i]); err != nil {
			return err
		}
		defer files[i].Close()
	}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	for n := 1; time.Now().Before(until); n++ {
		for _, f := range files {
			if _, err := f.WriteAt(fmt.Appendf(nil, "%020d", n), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// flood asks DNS so many questions at once, and counts what comes of it.
func flood(args []string) error {
	n, err := number(args)
	if err != nil {
		return err
	}
	var answered, refused atomic.Int32
	done := make(chan struct{})
	for i := range n {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := net.DefaultResolver.LookupHost(ctx, fmt.Sprintf("10-0-%d-%d.default.pod.cluster.local.", i/256, i%256)) // services are asked for freely
			if e := (*net.DNSError)(nil); errors.As(err, &e) && !e.IsNotFound {
				refused.Add(1)
			} else {
				answered.Add(1)
			}
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
	fmt.Println(answered.Load(), "answered", refused.Load(), "refused")
	return nil
}

func number(args []string) (int, error) {
	s, err := one(args)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}
