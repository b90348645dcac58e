package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) wakeCommand() *cobra.Command {
	return p.Things(&cobra.Command{
		Use:   "wake NAME|ID",
		Short: "Wake the laptop of a peer that sleeps",
		Long: `Wake the laptop of a peer that sleeps, by a magic packet (Wake on LAN).

It is done where the contract says that it may be, as often within a day as it says: the peer's owner grants that by kith share --wake.
A peer that went to sleep on battery is not woken. When this machine is not on the network of the one that sleeps, a peer of both that
is there is asked to send the packet. Pods that wait for room have peers woken by themselves (docs/laptop.md).`,
		Example: "  kith wake bob",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			is, err := program.CallAbout(p.Program, c, (*client.Client).Wake, args[0])
			return program.Answer(p.Program, is, err, func(is api.Waking) {
				fmt.Fprintf(p.Out, "%s is being woken, for the %s time within a day of %d\n", screen.Clean(is.Peer), ordinal(is.Times), is.PerDay)
			})
		},
	})
}

// ordinal is a number in its order: "1st".
func ordinal(n int32) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
