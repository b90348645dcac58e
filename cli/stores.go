package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"kith.dev/core/api"
)

// stores are the programs that build images and keep them in a store of their own, to which each finds the way by its settings.
var stores = []string{"docker", "podman", "nerdctl"}

// saved is the archive of an image in one of those stores. from is the one to look at; "": all of them.
func saved(ctx context.Context, name, from string) (io.Reader, func(), error) {
	var has, looked []string
	for _, program := range stores {
		if from != "" && program != from {
			continue
		}
		if _, err := exec.LookPath(program); err != nil {
			continue
		}
		looked = append(looked, program)
		if exec.CommandContext(ctx, program, "image", "inspect", "--", name).Run() == nil {
			has = append(has, program)
		}
	}
	switch {
	case from != "" && !slices.Contains(stores, from):
		return nil, nil, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("there is no store called %q", from), Do: "one of " + strings.Join(stores, ", "), Field: "from"}
	case len(has) > 1:
		return nil, nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s have an image %q", strings.Join(has, " and "), name), Do: "say which one's with --from", Field: "from"}
	case len(has) == 0:
		e := &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no file and no image %q", name), Reason: "none of " + strings.Join(stores, ", ") + " is installed",
			Do: "name the archive of an image, or an image that one of them has", Field: "file"}
		if len(looked) > 0 {
			e.Reason = strings.Join(looked, " and ") + " has no such image that you may read"
		}
		return nil, nil, e
	}
	cmd := exec.CommandContext(ctx, has[0], "save", "--", name)
	s := &saving{cmd: cmd}
	cmd.Stderr = &s.said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, &api.Error{Code: api.CodeUnavailable, Message: has[0] + " cannot be run", Reason: err.Error()}
	}
	s.out = out
	return s, s.close, nil
}

// saving reads what a program writes; its end is an error when the program failed.
type saving struct {
	cmd   *exec.Cmd
	out   io.ReadCloser
	said  bytes.Buffer
	ended bool
}

func (s *saving) Read(b []byte) (int, error) {
	n, err := s.out.Read(b)
	if err == io.EOF && !s.ended {
		s.ended = true
		if failed := s.cmd.Wait(); failed != nil {
			why := strings.TrimSpace(s.said.String())
			return n, &api.Error{Code: api.CodeUnavailable, Message: s.cmd.Args[0] + " does not give the image", Reason: why[:min(len(why), 500)]}
		}
	}
	return n, err
}

func (s *saving) close() {
	if !s.ended {
		_ = s.out.Close()
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}
