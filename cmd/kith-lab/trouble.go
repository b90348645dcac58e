package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/test/lab"
)

func cutCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "cut A [B]",
		Short: "Cut the link between two laptops, or of one to all",
		Long: `Drops every frame in silence, in both directions: nobody sees a link go down. Without B, laptop A is cut from the
whole LAN. A cut stays over a reboot until heal.`,
		Example: "  kith-lab cut alice bob\n  kith-lab cut carol",
		Args:    cobra.RangeArgs(1, 2),
		RunE:    onLink(open, (*lab.Lab).Cut),
	}
}

func healCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:     "heal A [B]",
		Short:   "Undo cut; without B, of all links of A",
		Example: "  kith-lab heal alice bob\n  kith-lab heal carol",
		Args:    cobra.RangeArgs(1, 2),
		RunE:    onLink(open, (*lab.Lab).Heal),
	}
}

func onLink(open opener, do func(*lab.Lab, context.Context, string, string) error) func(*cobra.Command, []string) error {
	return open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
		return do(l, c.Context(), args[0], append(args, "")[1])
	})
}

func slowCommand(open opener) *cobra.Command {
	var delay time.Duration
	var loss string
	c := &cobra.Command{
		Use:   "slow A RATE|off",
		Short: "Limit a laptop's link: rate, delay, loss",
		Long: `Sets the quality of a laptop's link, the same in both directions, in place of what was set before. RATE is in bits per
second, as 500kbit, 10mbit, 1gbit. The delay is added in each direction, so a ping takes twice that; it needs a kernel
with netem. "off" makes the link perfect again.`,
		Example: `  kith-lab slow alice 10mbit
  kith-lab slow alice 10mbit --delay 20ms --loss 1%
  kith-lab slow bob --loss 5%
  kith-lab slow alice off`,
		Args: cobra.RangeArgs(1, 2),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			k := lab.Link{Delay: delay}
			var err error
			if k.Loss, err = parsePart(loss); err != nil {
				return err
			}
			rate := append(args, "")[1]
			switch {
			case rate == "" && delay == 0 && k.Loss == 0:
				return fmt.Errorf("say how: a rate as 10mbit, --delay, --loss, or off")
			case rate == "off" && (delay != 0 || k.Loss != 0):
				return fmt.Errorf("off takes everything away: leave out --delay and --loss")
			case rate != "" && rate != "off":
				if k.Rate, err = parseRate(rate); err != nil {
					return err
				}
			}
			return l.Laptop(args[0]).Slow(c.Context(), k)
		}),
	}
	c.Flags().DurationVar(&delay, "delay", 0, "delay in each direction, as 20ms")
	c.Flags().StringVar(&loss, "loss", "0", "part of the packets lost in each direction, as 5%")
	return c
}

func mtuCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:     "mtu A N",
		Short:   "Set the MTU of a laptop's link; 1500 is usual",
		Long:    "Sets the MTU at both ends of the laptop's link. Larger frames from others are dropped in silence.",
		Example: "  kith-lab mtu alice 1400\n  kith-lab mtu alice 1500",
		Args:    cobra.ExactArgs(2),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("MTU %q: use a number of bytes", args[1])
			}
			return l.Laptop(args[0]).SetMTU(c.Context(), n)
		}),
	}
}

func moveCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:     "move A [ADDRESS]",
		Short:   "Give a laptop another LAN address, as when changing Wi-Fi",
		Long:    "The link goes down, the old address goes, the link comes up with the new one: the next free from 192.0.2.101 on.",
		Example: "  kith-lab move alice\n  kith-lab move alice 192.0.2.77",
		Args:    cobra.RangeArgs(1, 2),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			var to netip.Addr
			var err error
			if len(args) == 2 {
				if to, err = netip.ParseAddr(args[1]); err != nil {
					return err
				}
			}
			if to, err = l.Laptop(args[0]).Move(c.Context(), to); err == nil {
				fmt.Fprintln(c.OutOrStdout(), to)
			}
			return err
		}),
	}
}

func freezeCommand(open opener) *cobra.Command {
	return onLaptops(open, "freeze", "Stop all processes of a laptop where they stand, as suspend does", (*lab.Laptop).Freeze)
}

func thawCommand(open opener) *cobra.Command {
	return onLaptops(open, "thaw", "Let a frozen laptop go on", (*lab.Laptop).Thaw)
}

func killCommand(open opener) *cobra.Command {
	return onLaptops(open, "kill", "Power loss: everything in the laptop dies at once, the disk stays", (*lab.Laptop).Kill)
}

func bootCommand(open opener) *cobra.Command {
	var noWait bool
	c := onLaptops(open, "boot", "Switch on a laptop that was killed, and wait until it is ready", func(p *lab.Laptop, ctx context.Context) error {
		if err := p.Boot(ctx); err != nil || noWait {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		return p.WaitReady(ctx, nil)
	})
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is ready")
	return c
}

// onLaptops is a command that does one thing to each laptop named.
func onLaptops(open opener, use, short string, do func(*lab.Laptop, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME…|all", Short: short,
		Example: fmt.Sprintf("  kith-lab %s alice", use),
		Args:    cobra.MinimumNArgs(1),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			for _, a := range args {
				for _, p := range some(l, a) {
					if err := do(p, c.Context()); err != nil {
						return err
					}
				}
			}
			return nil
		}),
	}
}

func daemonCommand(open opener) *cobra.Command {
	var how string
	c := onLaptops(open, "restart", "Restart kithd only, as systemctl does", func(p *lab.Laptop, ctx context.Context) error {
		switch how {
		case "restart":
			return p.RestartDaemon(ctx)
		case "stop":
			return p.StopDaemon(ctx)
		case "start":
			return p.StartDaemon(ctx)
		case "crash":
			return p.KillDaemon(ctx)
		}
		return fmt.Errorf("--how %q: use restart, stop, start or crash", how)
	})
	c.Long = "Restarts kithd; what it started lives on. A kithd that dies by itself is started again after a second."
	c.Example = `  kith-lab restart alice
  kith-lab restart alice --how crash   # SIGKILL; back after a second
  kith-lab restart alice --how stop    # and stays stopped
  kith-lab restart alice --how start`
	c.Flags().StringVar(&how, "how", "restart", "restart, stop, start or crash")
	return c
}
