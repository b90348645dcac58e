package images

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// turns lets the parts of one image come one after the other. Side by side they would come no sooner over a link that is the narrowest of all,
// but end all at once: nothing comes then while containerd writes them to the disk, and they are unpacked when the last byte is there.
type turns struct {
	mu    sync.Mutex
	lines map[string][]chan struct{} // by where from, of which image; closed is that of the first
}

// Of a part whose turn it is not some comes all the same, each second so many bytes: home gives up a peer that does not take a piece in half
// a minute, kith-image one of which nothing comes, and the first may come from a disk that is slower than the link.
const (
	aside    = time.Second
	someMore = piece / 4
)

// take stands in a line until the body is at its end or closed.
func (t *turns) take(ctx context.Context, line string, body io.ReadCloser) io.ReadCloser {
	turn := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[string][]chan struct{}{}
	}
	if t.lines[line] = append(t.lines[line], turn); len(t.lines[line]) == 1 {
		close(turn)
	}
	return &inTurn{ReadCloser: body, ctx: ctx, turn: turn, leave: sync.OnceFunc(func() { t.leave(line, turn) })}
}

func (t *turns) leave(line string, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.lines[line]
	i := slices.Index(was, turn)
	left := slices.Delete(was, i, i+1)
	switch {
	case len(left) == 0:
		delete(t.lines, line)
		return
	case i == 0:
		close(left[0])
	}
	t.lines[line] = left
}

// inTurn is read when its turn is there, and in small parts before that.
type inTurn struct {
	io.ReadCloser
	ctx   context.Context
	turn  <-chan struct{}
	leave func()
	some  int // bytes that may come before the turn is there
}

func (b *inTurn) Read(p []byte) (int, error) {
	first := false
	select {
	case <-b.turn:
		first = true
	default:
	}
	if !first && b.some == 0 {
		b.some = someMore
		select {
		case <-b.turn:
			first = true
		case <-time.After(aside):
		case <-b.ctx.Done():
		}
	}
	if !first {
		p = p[:min(len(p), b.some)]
	}
	n, err := b.ReadCloser.Read(p)
	b.some -= min(n, b.some)
	if err != nil {
		b.leave()
	}
	return n, err
}

func (b *inTurn) Close() error {
	b.leave()
	return b.ReadCloser.Close()
}
