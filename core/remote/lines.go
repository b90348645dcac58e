package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lines reads a stream line by line, none of which may be longer than most bytes.
type lines struct {
	from *bufio.Reader
	most int
	long []byte // a line that is longer than what is read at once
}

func newLines(from io.Reader, most int) *lines {
	return &lines{from: bufio.NewReaderSize(from, 32<<10), most: most}
}

// next gives the next line that has anything on it. It is good until next is called again.
func (l *lines) next() ([]byte, error) {
	l.long = nil // most are short, and the memory of a long one is not kept
	for {
		part, err := l.from.ReadSlice('\n')
		if len(l.long)+len(part) > l.most {
			return nil, fmt.Errorf("the peer sent a line of more than %d bytes", l.most)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
			continue
		case err != nil:
			return nil, err // of a line that is cut off nobody can say what it was
		case l.long != nil:
			part = append(l.long, part...)
			l.long = nil
		}
		if part = bytes.TrimSpace(part); len(part) > 0 {
			return part, nil
		}
	}
}
