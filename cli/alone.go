package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

const (
	// aloneTime bounds what the program of kithd does without a running one.
	aloneTime = 3 * time.Minute
	// maxFindings bounds what is read of its findings, in bytes.
	maxFindings = 1 << 20
)

// examineAlone has the program of kithd look at this machine. That it cannot is a finding too.
func (p *program) examineAlone(ctx context.Context, show func(api.Finding)) (found []api.Finding, err error) {
	failed := p.runKithd(ctx, maxFindings, func(out io.Reader) error {
		for lines := json.NewDecoder(out); ; {
			var f api.Finding
			if err := lines.Decode(&f); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			found = append(found, f)
			show(f)
		}
	}, "doctor")
	if err := ctx.Err(); err != nil {
		return found, err
	}
	var e *api.Error
	if errors.As(failed, &e) {
		f := api.Finding{Area: api.AreaDaemon, Name: "program", State: api.CheckFail, What: e.Message, Why: e.Reason, Do: e.Do}
		found = append(found, f)
		show(f)
	}
	return found, nil
}

// runKithd runs the program of kithd, as this user, and has read read what it writes, up to so many bytes. Errors are *api.Error.
func (p *program) runKithd(ctx context.Context, most int64, read func(io.Reader) error, args ...string) error {
	path := p.Kithd
	if path == "" {
		var missing *api.Error
		if path, missing = client.Program(); missing != nil {
			return missing
		}
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		limited := &io.LimitedReader{R: out, N: most}
		err = read(limited)
		if err == nil && limited.N == 0 {
			err = fmt.Errorf("it wrote more than %d bytes", most)
		}
		if err != nil {
			cancel()
		}
		if failed := cmd.Wait(); err == nil && failed != nil {
			err = fmt.Errorf("%w: %.300s", failed, strings.Join(strings.Fields(said.String()), " "))
		}
	}
	if err != nil {
		return &api.Error{
			Code: api.CodeInternal, Message: fmt.Sprintf("`%s %s` does not look at this machine", path, args[0]), Reason: err.Error(),
			Do: "`kith version --client` and `kithd --version` must say the same: install both anew",
		}
	}
	return nil
}
