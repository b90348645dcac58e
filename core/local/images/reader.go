package images

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// idle is how long a kith-image waits for the next question: the parts of an image are asked for one after another, and to begin takes longer
// than to answer.
const idle = 10 * time.Second

// answer is what kith-image says of a part. The bytes come after it unless it says why there are none, or names a file that has them.
type answer struct {
	Description
	File    string `json:"file"`
	Why     string `json:"why"`
	Missing bool   `json:"missing"`
}

// reader is a kith-image that reads.
type reader struct {
	*command
	in   io.WriteCloser
	from *bufio.Reader
	kill context.CancelFunc
	used bool // it has answered before
	rest *time.Timer
}

// Open gives what a part is, and its bytes. Close the reader, also when not all was read.
func (s *Store) Open(ctx context.Context, p Part) (Description, io.ReadCloser, error) {
	order := part{s.Socket(), p.Image, p.Digest, p.From, p.Head}
	for {
		r, err := s.reader()
		if err != nil {
			return Description{}, nil, err
		}
		a, err := r.ask(ctx, order)
		if err != nil {
			said := r.end()
			if r.used && ctx.Err() == nil {
				continue // it had ended by itself; another may answer
			}
			return Description{}, nil, cause(ctx, said, err)
		}
		if a.Why == "" && a.File == "" && !p.Head {
			return a.Description, &stream{r.from, r}, nil
		}
		s.keep(r)
		switch {
		case a.Missing:
			return Description{}, nil, fmt.Errorf("%w: %s", ErrNotFound, a.Why)
		case a.Why != "":
			return Description{}, nil, errors.New(a.Why[:min(len(a.Why), mostSaid)])
		case p.Head:
			return a.Description, io.NopCloser(bytes.NewReader(nil)), nil
		}
		return openFile(a, p.From)
	}
}

// cause is why there was no answer: the caller went, or what kith-image said at its end, or that it said nothing.
func cause(ctx context.Context, said, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if said != nil && !errors.Is(said, context.Canceled) {
		return said
	}
	return fmt.Errorf("what kith-image reads: %w", err)
}

// reader gives one that waits, or a new one.
func (s *Store) reader() (*reader, error) {
	s.mu.Lock()
	r := s.spare
	s.spare = nil
	s.mu.Unlock()
	if r != nil {
		r.rest.Stop()
		return r, nil
	}
	ctx, kill := context.WithCancel(context.Background())
	c, err := s.prepare(ctx, "read")
	if err != nil {
		kill()
		return nil, err
	}
	in, err := c.StdinPipe()
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		kill()
		return nil, err
	}
	return &reader{command: c, in: in, from: bufio.NewReaderSize(c.out, 64<<10), kill: kill}, nil
}

// ask puts one question. After an error it must be ended.
func (r *reader) ask(ctx context.Context, order part) (a answer, err error) {
	stop := context.AfterFunc(ctx, r.kill)
	defer stop()
	text, err := json.Marshal(order)
	if err == nil {
		_, err = r.in.Write(append(text, '\n'))
	}
	if err != nil {
		return a, err
	}
	line, err := r.from.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	return a, err
}

// keep has it wait for the next question; one that waits is enough.
func (s *Store) keep(r *reader) {
	r.used = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare != nil {
		go func() { _ = r.end() }()
		return
	}
	s.spare = r
	r.rest = time.AfterFunc(idle, func() {
		s.mu.Lock()
		mine := s.spare == r
		if mine {
			s.spare = nil
		}
		s.mu.Unlock()
		if mine {
			_ = r.end()
		}
	})
}

// end gives what it said at its end, if it ended by itself.
func (r *reader) end() error {
	r.in.Close()
	time.AfterFunc(time.Second, r.kill) // it ends when there are no more questions
	err := r.wait()
	r.kill()
	return err
}

// stream are bytes that kith-image sends itself.
type stream struct {
	io.Reader
	r *reader
}

func (s *stream) Close() error {
	s.r.kill()
	_ = s.r.wait() // it was killed, or had written all
	return nil
}

// openFile gives the bytes of a part from containerd's own file, which does not change: it is named by its digest.
func openFile(a answer, from int64) (Description, io.ReadCloser, error) {
	f, err := os.Open(a.File)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: a part of it was removed a moment ago", ErrNotFound)
	}
	if err != nil {
		return Description{}, nil, err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		f.Close()
		return Description{}, nil, err
	}
	return a.Description, f, nil
}
