package treecopy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Progress is how far a copy is.
type Progress struct {
	Total Stats // Entries and Bytes that the sender counted when it began
	Done  Stats
}

// Relay carries a copy from the stream of a Send to that of a Receive, and closes both at the end. It tells of the progress, now and then, from one
// goroutine; and lets no more bytes through than the limiter does, which may be nil. The error is of the side that broke, or nil: then it says what
// the receiver has.
func Relay(ctx context.Context, from, to io.ReadWriteCloser, limit *rate.Limiter, tell func(Progress)) (Stats, error) {
	defer from.Close()
	defer to.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
	var result Stats
	var forth, back, first error
	var both sync.WaitGroup
	var once sync.Once
	both.Go(func() {
		forth = forward(ctx, from, to, limit, tell, nil)
		once.Do(func() { first = forth })
		to.Close()
	})
	both.Go(func() {
		back = forward(ctx, to, from, nil, nil, &result)
		once.Do(func() { first = back })
		from.Close()
	})
	both.Wait()
	switch {
	case back == nil: // all is there, whatever came then
		return result, nil
	case ctx.Err() != nil:
		return Stats{}, context.Cause(ctx)
	case isFailed(forth):
		return Stats{}, forth
	case isFailed(back):
		return Stats{}, back
	}
	return Stats{}, first // the other was closed because of it
}

func isFailed(err error) bool {
	var failed *FailedError
	return errors.As(err, &failed)
}

// tellEvery is how often a Relay tells of its progress.
const tellEvery = time.Second

// forward carries frames one way. It ends without an error after the receiver's result, which it reads.
func forward(ctx context.Context, from io.Reader, to io.Writer, limit *rate.Limiter, tell func(Progress), result *Stats) error {
	in, out := bufio.NewReaderSize(from, buffered), bufio.NewWriterSize(to, buffered)
	var buffer []byte
	var is Progress
	var told time.Time
	for {
		k, payload, err := readFrame(in, &buffer)
		if err != nil {
			return err
		}
		if limit != nil {
			if err := limit.WaitN(ctx, min(headSize+len(payload), limit.Burst())); err != nil {
				return err
			}
		}
		var head [headSize]byte
		head[0] = byte(k)
		binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
		_, _ = out.Write(head[:])
		if _, err := out.Write(payload); err != nil {
			return err
		}
		if in.Buffered() < headSize || k == kindFailed || k == kindResult {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		f := fields{rest: payload}
		switch {
		case k == kindFailed:
			return &FailedError{string(payload[:min(len(payload), wordsMost)])}
		case k == kindResult && result != nil:
			*result = f.stats()
			return nil
		case k == kindHello && tell != nil:
			f.take(2)
			is.Total = f.stats()
		case k == kindEntry && tell != nil:
			is.Done.Entries++
			if e, err := readEntry(payload); err == nil {
				is.Done.Bytes += e.Size
			}
		case k == kindData:
			is.Done.Sent += int64(len(payload))
		}
		if tell != nil && time.Since(told) > tellEvery {
			told = time.Now()
			tell(is)
		}
	}
}
