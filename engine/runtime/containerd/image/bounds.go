package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// quiet is how long a home or a registry may send nothing in the midst of an answer.
const quiet = 30 * time.Second

var errQuiet = errors.New("nothing came for a while, though it is not all")

// steady ends an answer that stands still, and one that is to describe an image and is too long: who resolves a name reads as much as there
// is.
type steady struct {
	http.RoundTripper
	quiet  time.Duration
	broken *atomic.Bool // set when an answer did not come, or not to its end
}

func (s steady) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(s.quiet, func() { cancel(errQuiet) })
	resp, err := s.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		late.Stop()
		cancel(nil)
		s.broken.Store(true)
		return nil, err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		s.broken.Store(true)
	}
	resp.Body = &steadyBody{resp.Body, s, ctx, late, cancel}
	if strings.Contains(r.URL.Path, "/manifests/") {
		resp.Body = http.MaxBytesReader(nil, resp.Body, mostDescription)
	}
	return resp, nil
}

type steadyBody struct {
	io.ReadCloser
	steady
	ctx    context.Context
	late   *time.Timer
	cancel context.CancelCauseFunc
}

func (b *steadyBody) Read(p []byte) (int, error) {
	b.late.Reset(b.quiet)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken.Store(true)
	}
	if err != nil && context.Cause(b.ctx) == errQuiet {
		err = errQuiet
	}
	return n, err
}

func (b *steadyBody) Close() error {
	b.late.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

const (
	// mostFull is how full guests' images may make the owner's disk, in hundredths of its bytes. From 95 on the kubelet removes images.
	mostFull = 94
	// mostFiles is the same for its inodes.
	mostFiles = 95
	// looks is how often that is looked at while an image is had. What a layer unpacks to nothing says beforehand.
	looks = 100 * time.Millisecond
)

// errFull is the cause of the end of a context of roomy.
var errFull = errors.New("the provider's disk is too full for images of guests")

// roomy gives a context that ends when the disk of a folder has become too full, or cannot be looked at.
func roomy(ctx context.Context, folder string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if err := full(folder); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	go func() {
		look := time.NewTicker(looks)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if err := full(folder); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// full says that the disk of a folder is too full, or that nobody can tell; nil when it has room.
func full(folder string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return fmt.Errorf("%w, as far as is known: its folder %q cannot be looked at: %w", errFull, folder, err)
	}
	if s.Blocks > 0 && 100*(s.Blocks-s.Bavail)/s.Blocks >= mostFull {
		return fmt.Errorf("%w: %d MB of it are free", errFull, s.Bavail*uint64(s.Bsize)/1_000_000) //nolint:gosec // a size of blocks is positive
	}
	if s.Files > 0 && 100*(s.Files-s.Ffree)/s.Files >= mostFiles {
		return fmt.Errorf("%w: there is room for %d more files", errFull, s.Ffree)
	}
	return nil
}
