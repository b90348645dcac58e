package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) awakeCommand() *cobra.Command {
	var options api.AwakeOptions
	c := p.Things(&cobra.Command{
		Use:   "awake",
		Short: "Keep this laptop awake while guests run here",
		Long: `Keep this laptop awake while pods of peers run here, so that they do not stand still; without a flag it says whether it is.

kithd holds a lock of logind's then, which systemd-inhibit --list shows: the laptop is not suspended when nobody uses it, nor when
its lid is closed, and "Suspend" in the desktop's menu is refused, too, until "kith awake --off". The screen goes dark as always.

It ends by itself: with --until-guests-end a minute after the last guest has ended, with --for when the time is up, with both at
whichever comes first, after 24 hours in any case, and at once when the laptop runs on its battery and that is not above 20 %. It
ends with kithd, too. What logind then does with a lid that is closed it does: the laptop is suspended. Closed and awake it gets
warm: not in a bag.`,
		Example: "  kith awake --until-guests-end\n  kith awake --for 2h\n  kith awake\n  kith awake --off",
		Args:    program.Between(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if options == (api.AwakeOptions{}) {
				return p.showAwake(c)
			}
			if err := options.Check(); err != nil {
				return err
			}
			is, err := program.CallAbout(p.Program, c, (*client.Client).KeepAwake, options)
			return program.Answer(p.Program, is, err, func(is api.Awake) { fmt.Fprintln(p.Out, kept(is, p.Now())) })
		},
	})
	c.Flags().BoolVar(&options.UntilGuestsEnd, "until-guests-end", false, "until no pod of a peer runs here any more")
	c.Flags().DurationVar((*time.Duration)(&options.For), "for", 0, "for so `LONG`, from 1m to 24h, for example 2h")
	c.Flags().BoolVar(&options.Off, "off", false, "let it sleep again")
	return c
}

func (p commands) showAwake(c *cobra.Command) error {
	s, err := program.Call(p.Program, c, (*client.Client).Status)
	if err == nil && s.Awake == nil {
		err = &api.Error{Code: api.CodeUnsupported, Message: "this machine cannot be kept awake", Reason: "logind, which would suspend it, does not run here, or cannot do it; or kithd is older than this kith"}
	}
	if err != nil {
		return err
	}
	return program.Answer(p.Program, *s.Awake, nil, func(is api.Awake) {
		said := kept(is, p.Now())
		if !is.Kept && s.Counts.Guests > 0 {
			said += "; " + screen.Count(s.Counts.Guests, "guest") + " would stand still while it sleeps (kith awake --until-guests-end)"
		}
		fmt.Fprintln(p.Out, said)
	})
}

// kept says how this laptop is kept awake.
func kept(is api.Awake, now time.Time) string {
	if !is.Kept {
		return "this laptop may sleep"
	}
	until := fmt.Sprintf("until %s, in %s", is.Until.Local().Format("15:04"), screen.Age(is.Until.Sub(now)))
	if is.UntilGuestsEnd {
		until = "until its guests end, at the latest " + until
	}
	return "this laptop is kept awake " + until
}
