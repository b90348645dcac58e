// Package systemd asks systemd for the state of a service, restarts or stops it, through systemctl: what D-Bus would need more
// code for is done a few times in a laptop's life.
package systemd

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// patience is how long an answer may take; a restart takes as long as the service needs.
const patience = 5 * time.Second

// Unit is the name of a unit, such as k3s.service.
type Unit string

// Find reports whether this system has a unit of that name; a system without systemd has none.
func Find(ctx context.Context, name string) (Unit, bool) {
	out, err := ask(ctx, "show", "--property=LoadState", "--value", name)
	return Unit(name), err == nil && out == "loaded"
}

// Name is the unit's.
func (u Unit) Name() string { return string(u) }

// State is what systemd says of it, in its words: "active (running)", "inactive (dead)".
func (u Unit) State(ctx context.Context) (string, error) {
	out, err := ask(ctx, "show", "--property=ActiveState", "--property=SubState", "--value", string(u))
	if err != nil {
		return "", err
	}
	active, sub, _ := strings.Cut(out, "\n")
	return fmt.Sprintf("%s (%s)", active, sub), nil
}

// Enabled reports whether it is started at boot.
func (u Unit) Enabled(ctx context.Context) bool {
	out, err := ask(ctx, "is-enabled", string(u))
	return err == nil && strings.HasPrefix(out, "enabled")
}

// Restart returns when the service says that it is ready, or ctx ends.
func (u Unit) Restart(ctx context.Context) error {
	_, err := systemctl(ctx, "restart", string(u))
	return err
}

// Disable stops the service, and has it not be started at boot.
func (u Unit) Disable(ctx context.Context) error {
	_, err := systemctl(ctx, "disable", "--now", string(u))
	return err
}

func ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return systemctl(ctx, args...)
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil && said.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), err
}
