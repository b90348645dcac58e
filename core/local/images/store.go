// Package images is what the container runtime of this laptop has, by the program kith-image: read for peers; loaded, listed and removed for
// its owner.
//
// It must never read what an image says, nor decide who may have one: the first is kith-image's, the second its callers'.
package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"kith.dev/core/api"
)

// Program is kith-image, beside the engine.
const Program = "kith-image"

// ErrNotFound: there is no such image, or it has no such part, or parts of it are missing.
var ErrNotFound = errors.New("no such image")

const (
	exitNotFound = 3       // of kith-image
	mostSaid     = 2 << 10 // bytes of its error
	mostListed   = 8 << 20 // bytes of its list: some ten thousand images
)

// Store asks kith-image, a process for each call; those that read answer several questions one after another.
type Store struct {
	Program string        // path of kith-image
	Socket  func() string // containerd's; "": this laptop has none that Kith knows

	mu    sync.Mutex
	spare *reader // waits for the next question; nil: none does
}

// Part is a part of an image: what its name means, or a manifest, configuration or layer by its digest.
type Part struct {
	Image  string // as a pod names it
	Digest string // "": what the name means
	From   int64  // the first byte that is wanted
	Head   bool   // none are
}

// Description is what a part is.
type Description struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"` // bytes of the whole
}

// part is what kith-image reads; the same as in kith.dev/engine/runtime/containerd/image.
type part struct {
	Socket string `json:"socket"`
	Image  string `json:"image"`
	Digest string `json:"digest,omitempty"`
	From   int64  `json:"from,omitempty"`
	Head   bool   `json:"head,omitempty"`
}

// Load takes the images of an archive in, as docker save and podman save write them. name is for an archive whose image has none.
func (s *Store) Load(ctx context.Context, archive io.Reader, name string) ([]api.Image, error) {
	return s.list(ctx, "import", what{s.Socket(), name}, archive)
}

// List gives what images there are, by name.
func (s *Store) List(ctx context.Context) ([]api.Image, error) {
	return s.list(ctx, "list", what{Socket: s.Socket()}, nil)
}

// Remove takes a name away, and what no other name has of the image.
func (s *Store) Remove(ctx context.Context, name string) error {
	c, err := s.start(ctx, "remove", what{s.Socket(), name}, nil)
	if err != nil {
		return err
	}
	return c.wait()
}

// what is what kith-image reads; the same as in kith.dev/engine/runtime/containerd/image.
type what struct {
	Socket string `json:"socket"`
	Image  string `json:"image,omitempty"`
}

func (s *Store) list(ctx context.Context, verb string, order what, in io.Reader) ([]api.Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := s.start(ctx, verb, order, in)
	if err != nil {
		return nil, err
	}
	list := []api.Image{}
	text, err := io.ReadAll(io.LimitReader(c.out, mostListed+1))
	if len(text) > mostListed { // it would wait for a reader for ever
		cancel()
		_ = c.wait()
		return nil, fmt.Errorf("kith-image lists more than %d bytes", mostListed)
	}
	if said := c.wait(); said != nil {
		return nil, said
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("what kith-image lists: %w", err)
	}
	return list, nil
}

// command is a kith-image that runs.
type command struct {
	*exec.Cmd
	ctx  context.Context
	out  io.Reader
	said bytes.Buffer
}

// start runs kith-image with its order, and what comes after it, as standard input.
func (s *Store) start(ctx context.Context, verb string, order any, in io.Reader) (*command, error) {
	c, err := s.prepare(ctx, verb)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	c.Stdin = bytes.NewReader(append(text, '\n'))
	if in != nil {
		c.Stdin = io.MultiReader(c.Stdin, in)
	}
	return c, c.begin()
}

func (s *Store) prepare(ctx context.Context, verb string) (*command, error) {
	if s.Socket() == "" {
		return nil, fmt.Errorf("%w: Kith knows no container runtime of this laptop's cluster", ErrNotFound)
	}
	c := &command{Cmd: exec.CommandContext(ctx, s.Program, verb), ctx: ctx}
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", "GOMEMLIMIT=128MiB", "GOGC=50"}
	c.Stderr = &c.said
	return c, nil
}

func (c *command) begin() (err error) {
	if c.out, err = c.StdoutPipe(); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("run kith-image: %w", err)
	}
	return nil
}

// wait gives how it ended, in its own words.
func (c *command) wait() error {
	err := c.Wait()
	text := strings.TrimSpace(c.said.String())
	text = text[:min(len(text), mostSaid)]
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case ended && exit.ExitCode() == exitNotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, text)
	case ended && text != "":
		return errors.New(text)
	}
	return fmt.Errorf("kith-image: %w", err)
}
