// Package command is the command line of kith-tray, apart from what it runs, so that the manual page is made of it without a
// desktop. cmd/kith-tray and cli/man use it.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"kith.dev/core/api/client"
)

// Options are what the flags say.
type Options struct {
	Socket  string
	Once    bool
	Verbose bool
}

// New makes the command; run does the work.
func New(getenv func(string) string, version string, run func(context.Context, Options) error) *cobra.Command {
	var o Options
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
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), o) },
	}
	socket := client.DefaultSocket
	if set := getenv("KITH_SOCKET"); set != "" {
		socket = set
	}
	c.Flags().StringVar(&o.Socket, "socket", socket, "unix socket of kithd; $KITH_SOCKET sets the default")
	c.Flags().BoolVar(&o.Once, "once", false, "print the menu as text and exit; needs no desktop")
	c.Flags().BoolVar(&o.Verbose, "verbose", false, "say more on the standard error output")
	return c
}
