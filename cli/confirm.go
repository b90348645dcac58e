package cli

import (
	"bufio"
	"fmt"
	"strings"

	"kith.dev/core/api"
)

// confirm asks on a terminal whether what will happen is meant. Scripts are not asked: they have said what they want.
func (p *program) confirm(sure bool, will string) error {
	if sure || will == "" || !p.InTerminal || !p.ErrTerminal {
		return nil
	}
	return p.sure(will + ". Go on?")
}

// sure is nil when the answer to a question is yes.
func (p *program) sure(question string) error {
	fmt.Fprintf(p.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(p.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &api.Error{Code: api.CodeConflict, Message: "nothing was done", Do: "`--yes` does it without asking"}
}
