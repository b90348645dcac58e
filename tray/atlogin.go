package tray

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
	"kith.dev/tray/desktop"
	"kith.dev/tray/login"
)

// refusedLogin is the file that says that the owner does not want Kith started at login.
func refusedLogin() string { return filepath.Join(filepath.Dir(places.Here().Config), "not-at-login") }

// offerLogin asks the owner of a Mac, at the first start, whether kithd and the tray are to be started at login.
func offerLogin(ctx context.Context, programs *desktop.Desktop, log *slog.Logger) {
	services, err := login.Here()
	if err == nil && len(services) > 0 {
		err = login.Offer(ctx, services, refusedLogin(), programs.Ask, log)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("Kith is not started at login", "err", err)
	}
}

// atLogin is --at-login: on, off, or what is.
func atLogin(what string, out io.Writer, log *slog.Logger) error {
	services, err := login.Here()
	if err != nil {
		return err
	}
	if len(services) == 0 {
		return &api.Error{Code: api.CodeInvalid, Message: "this kith-tray is not in Kith.app, which is what macOS starts at login", Do: "call that in /Applications/Kith.app/Contents/MacOS"}
	}
	switch what {
	case "on":
		err = login.Register(services, refusedLogin(), log)
	case "off":
		err = login.Unregister(services)
	case "show":
	default:
		return api.Invalid("at-login", what, "on, off or show")
	}
	for _, s := range services {
		fmt.Fprintf(out, "%s: %s\n", s.Name(), s.Status())
	}
	return err
}
