package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"kith.dev/core/api"
)

// Asks reports whether there is somebody to ask: at a terminal that shows the question and takes the answer.
func (p *Program) Asks() bool { return p.InTerminal && p.ErrTerminal }

// Sure is nil when the answer to a question is yes.
func (p *Program) Sure(ctx context.Context, question string) error {
	fmt.Fprintf(p.Err, "%s [y/N] ", question)
	if text, _ := Line(ctx, bufio.NewReader(p.In)); text == "y" || text == "yes" {
		return nil
	}
	return &api.Error{Code: api.CodeConflict, Message: "nothing was done", Do: "`--yes` does it without asking"}
}

// NoTerminal is why a question was not asked.
func NoTerminal() error {
	return &api.Error{Code: api.CodeInvalid, Message: "nothing was done", Reason: "there is no terminal to ask at whether that is meant", Do: "`--yes` does it without asking", Field: "yes"}
}

// Line reads an answer, in small letters. Who leaves without one has said nothing: io.EOF.
func Line(ctx context.Context, in *bufio.Reader) (string, error) {
	line := make(chan string, 1)
	go func() {
		defer close(line)
		text, err := in.ReadString('\n')
		if err == nil || text != "" && errors.Is(err, io.EOF) {
			line <- strings.ToLower(strings.TrimSpace(text))
		}
	}()
	select {
	case text, said := <-line:
		if said {
			return text, nil
		}
		return "", io.EOF
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
