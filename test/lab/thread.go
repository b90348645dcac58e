package lab

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs a function in a thread that ends with it, and takes along the namespaces and cgroups it entered.
func onOwnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: Go ends the thread of a goroutine that ends locked
		if unix.Gettid() == unix.Getpid() {
			// But not the main thread; that one it parks for ever, and it would keep the cgroup from being removed and show
			// the laptop's mounts as /proc/self. While we hold it, the next try gets another.
			done <- onOwnThread(do)
			runtime.UnlockOSThread()
			return
		}
		done <- do()
	}()
	return <-done
}
