package gateway

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// transit hands packets of our guests at one peer, which go on to our guests at another, from the WireGuard that opened them to the
// one that seals them. Through the kernel each would be written to the device and read from it, and nothing would be decided there that the
// data path has not decided: core/provide/fence lets all of them through. It is a quarter of the work of such a packet.
//
// WireGuard reads from one place, the device. So its reader is called back from there by a deadline, and looks at both by turns.
type transit struct {
	file *os.File        // of the device
	raw  syscall.RawConn // the same

	writer sync.Mutex    // held by the one whose packets are here
	taken  chan struct{} // has an item when they were
	done   chan struct{} // closed at the end

	mu      sync.Mutex
	packets [][]byte
	away    bool // the reader is at the device, or on its way there
	called  bool // back, by a deadline that is there still
	device  bool // the reader was at the device last
}

func newTransit(file *os.File) (*transit, error) {
	raw, err := file.SyscallConn()
	return &transit{file: file, raw: raw, taken: make(chan struct{}, 1), done: make(chan struct{})}, err
}

// put returns when the packets, which are ready to be sealed, were taken; or when there is nobody any more who would.
func (t *transit) put(packets [][]byte) {
	t.writer.Lock()
	defer t.writer.Unlock()
	t.mu.Lock()
	if t.packets = packets; t.away && !t.called {
		t.called = t.file.SetReadDeadline(time.Unix(1, 0)) == nil
	}
	t.mu.Unlock()
	select {
	case <-t.taken:
	case <-t.done:
		t.mu.Lock()
		t.packets = nil
		t.mu.Unlock()
	}
}

// take gives the reader what is here. 0: it is to read from the device, since nothing is here, or something there, too, and it was not there last.
func (t *transit) take(bufs [][]byte, sizes []int, offset int) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.packets) == 0 || !t.device && t.readable() {
		if t.away, t.device = true, true; t.called {
			t.called = t.file.SetReadDeadline(time.Time{}) != nil
		}
		return 0
	}
	t.away, t.device = false, false
	for n < min(len(bufs), len(t.packets)) {
		sizes[n] = copy(bufs[n][offset:], t.packets[n])
		n++
	}
	if t.packets = t.packets[n:]; len(t.packets) == 0 {
		t.taken <- struct{}{}
	}
	return n
}

// readable reports whether the device has a packet.
func (t *transit) readable() (yes bool) {
	err := t.raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = err == nil && n > 0
	})
	return err == nil && yes
}

func (t *transit) close() { close(t.done) }
