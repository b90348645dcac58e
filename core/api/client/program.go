package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
)

// Program finds the program of kithd that belongs to this one: beside it, or where packages have it. PATH is not asked, which may be
// somebody else's when root calls.
func Program() (string, *api.Error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return "", &api.Error{Code: api.CodeInternal, Message: "this program does not know where it is", Reason: err.Error(), Do: "call it by its path"}
	}
	here := filepath.Dir(own)
	places := []string{filepath.Join(here, "kithd"), filepath.Join(filepath.Dir(here), "sbin", "kithd")}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &api.Error{
		Code: api.CodeUnavailable, Message: "kithd is not installed", Reason: "there is no " + strings.Join(places, " nor ") + ", which looks at this machine",
		Do: "install Kith anew: its package has both programs",
	}
}

// exitConfig is with which kithd ends when it does not understand its configuration (EX_CONFIG of sysexits.h).
const exitConfig = 78

const (
	checkTime  = 3 * time.Second
	checkAgain = 30 * time.Second // whoever waits for kithd calls often, and its program is large
	maxReason  = 1000
)

// refusal remembers why kithd would not start.
type refusal struct {
	mu   sync.Mutex
	at   time.Time
	said string
}

// why is what the program of kithd at path says against its configuration; "" where it says nothing.
func (r *refusal) why(ctx context.Context, path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < checkAgain {
		return r.said
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "check-config")
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	r.at, r.said = time.Now(), ""
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == exitConfig {
		text := strings.TrimPrefix(strings.Join(strings.Fields(said.String()), " "), "kithd: ")
		r.said = fmt.Sprintf("%.*s", maxReason, text)
	}
	return r.said
}
