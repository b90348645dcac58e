// Package login has macOS start kithd and the tray when their owner logs in: both are services of Kith.app, which SMAppService registers
// (macOS 13 and later), once the owner said so. Elsewhere a package's files do that, and Here gives nothing.
//
// It must not register anything without having asked, nor ask again who said no.
package login

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"kith.dev/tray/question"
)

// Status is what macOS says of a service (SMAppServiceStatus).
type Status int

// The statuses. Of a service that was never registered it says one or the other of the first and the last.
const (
	NotRegistered Status = iota
	Enabled
	RequiresApproval // registered, and switched off by the owner or an administrator
	NotFound
)

func (s Status) String() string {
	switch s {
	case NotRegistered, NotFound:
		return "not registered"
	case Enabled:
		return "started at login"
	case RequiresApproval:
		return "switched off in System Settings › General › Login Items"
	}
	return fmt.Sprintf("unknown status %d", int(s))
}

// Service is one that macOS can start.
type Service interface {
	Name() string // for people
	Status() Status
	Register() error // and starts it
	Unregister() error
}

// Ask shows a question to the person in front of the screen.
type Ask func(context.Context, question.Question) (question.Answer, error)

// ErrNotAllowed says that the owner has to allow it.
var ErrNotAllowed = errors.New("macOS keeps it from starting: allow Kith in System Settings › General › Login Items")

// Bundle is the application that a program is in, and whether macOS keeps track of it there: what is opened from the disk image, or runs out
// of the place where macOS put what was downloaded, is gone after it. app is empty for a program that is in none.
func Bundle(program, home string) (app string, stays bool) {
	dir, found := strings.CutSuffix(filepath.Dir(program), "/Contents/MacOS")
	if !found || filepath.Ext(dir) != ".app" {
		return "", false
	}
	where := filepath.Dir(dir)
	return dir, where == "/Applications" || home != "" && where == filepath.Join(home, "Applications")
}

// Offer asks, at the first start, whether the services are to be started now and at each login, and has them registered after a yes. A no is kept
// in the file refused. Later asks again at the next start.
func Offer(ctx context.Context, services []Service, refused string, ask Ask, log *slog.Logger) error {
	missing, err := wanting(services)
	if err != nil || len(missing) == 0 {
		return err
	}
	if _, err := os.Stat(refused); err == nil {
		return nil
	}
	answer, err := ask(ctx, question.Question{
		Lead: "Start Kith now, and whenever you log in?",
		Text: []string{
			"Its daemon, kithd, looks for laptops around you and speaks for the cluster that ~/.kube/config leads to. It runs as you, not as root.",
			"System Settings › General › Login Items has a switch for it.",
		},
		Yes: "Start", No: "Never",
	})
	switch {
	case err != nil:
		return fmt.Errorf("ask whether Kith is to be started at login: %w", err)
	case answer == question.No:
		if err := os.MkdirAll(filepath.Dir(refused), 0o700); err != nil {
			return err
		}
		return os.WriteFile(refused, nil, 0o600)
	case answer != question.Yes:
		return nil
	}
	return Register(missing, refused, log)
}

// wanting are the services that are not registered. That one is registered and not allowed is an error: who switched it off is not asked again.
func wanting(services []Service) (missing []Service, err error) {
	for _, s := range services {
		switch s.Status() {
		case Enabled:
		case RequiresApproval:
			err = fmt.Errorf("%s: %w", s.Name(), ErrNotAllowed)
		default:
			missing = append(missing, s)
		}
	}
	return missing, err
}

// Register has macOS start the services now and at each login, and forgets an earlier no.
func Register(services []Service, refused string, log *slog.Logger) error {
	if err := os.Remove(refused); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var all []error
	for _, s := range services {
		if err := s.Register(); err != nil {
			all = append(all, fmt.Errorf("have macOS start %s at login: %w; docs/macos.md has another way", s.Name(), err))
			continue
		}
		log.Info("registered", "service", s.Name(), "status", s.Status().String())
	}
	_, err := wanting(services)
	return errors.Join(append(all, err)...)
}

// Unregister stops the services and has macOS forget them: before the application is thrown away.
func Unregister(services []Service) error {
	var all []error
	for _, s := range services {
		if st := s.Status(); st == NotRegistered || st == NotFound {
			continue
		}
		if err := s.Unregister(); err != nil {
			all = append(all, fmt.Errorf("have macOS forget %s: %w", s.Name(), err))
		}
	}
	return errors.Join(all...)
}
