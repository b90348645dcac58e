package tray

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
)

// Command is the command line of kith-tray.
func Command(getenv func(string) string, version string) *cobra.Command {
	var socket string
	var login string
	var once, verbose bool
	c := &cobra.Command{
		Use:   "kith-tray",
		Short: "Kith in the panel of the desktop",
		Long: `kith-tray puts Kith into the panel of your desktop: an icon that says how things stand, a menu to peer, to answer
requests and to say what this machine shares, and notifications of what happens. It runs as you and talks to kithd's
socket; for that you have to be a member of the group kith, which is root's equal on this machine. What binds you, to
accept a request and to confirm a code or terms, it asks in a window that zenity, yad, kdialog or xmessage shows, or in a
notification.

One runs per desktop session; a second start makes the first one show itself. The panel must show StatusNotifier items:
KDE, Xfce, LXQt, Cinnamon, MATE and Budgie do, GNOME with the extension AppIndicator. Without one there are still the
notifications. Which of them are shown is kept in ~/.config/kith/notifications.json.`,
		Example: "  kith-tray --once\n  kith-tray --verbose",
		Args:    cobra.NoArgs, Version: version, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if once {
				text, err := Once(c.Context(), socket)
				fmt.Print(text)
				return err
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			if login != "" {
				return atLogin(login, os.Stdout, log)
			}
			return Start(c.Context(), socket, version, log)
		},
	}
	c.Flags().StringVar(&socket, "socket", cmp.Or(getenv("KITH_SOCKET"), client.DefaultSocket), "unix socket of kithd; $KITH_SOCKET sets the default")
	if runtime.GOOS == "darwin" {
		c.Flags().StringVar(&login, "at-login", "", "have macOS start kithd and the tray at login: on, off (also ends them), show")
	}
	c.Flags().BoolVar(&once, "once", false, "print the menu as text and exit; needs no desktop")
	c.Flags().BoolVar(&verbose, "verbose", false, "say more on the standard error output")
	return c
}

// Once gives the menu as text, and the error that kept the daemon from being asked. It needs no desktop.
func Once(ctx context.Context, socket string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	daemon := client.New(socket)
	defer daemon.Close()
	var settings notice.Settings
	if path, err := notice.SettingsPath(); err == nil {
		settings, _ = notice.LoadSettings(path) // the default does for a look
	}
	s := menu.State{Link: menu.Up, Kinds: kindsOf(settings)}
	if s.Snapshot, err = daemon.Snapshot(ctx); err != nil {
		var why *api.Error
		s.Link, why = linkOf(err)
		s.Why, err = why, why
	}
	return menu.Text(menu.Of(s)), err
}
