package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) volumesCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:   "volumes [PEER|NAMESPACE|NAMESPACE/CLAIM...]",
		Short: "List the volumes of this cluster at peers, of peers here, and snapshots",
		Long: `List the volumes of this cluster at peers, and of peers here; and their snapshots (VolumeSnapshot), at home and at peers.

A volume at a peer goes when its claim is deleted: kubectl -n NAMESPACE delete pvc CLAIM. One of a peer here goes when that peer
deletes its claim, or, when the claim went otherwise, as with the end of a contract, at the time that is shown. With snapshots that
is the same: kubectl -n NAMESPACE delete volumesnapshot SNAPSHOT.`,
		Example: "  kith volumes\n  kith volumes bob\n  kith volumes shop/data -o json",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[api.Volume]{
				Get: (*client.Client).Volumes, Match: func(v api.Volume, name string) bool {
					return v.Peer == name || v.Namespace == name || v.Namespace+"/"+v.Claim == name
				}, Noun: "volume", Others: "kith volumes",
				Columns: []screen.Column[api.Volume]{
					{Title: "NAMESPACE", Cell: func(v api.Volume) string { return v.Namespace }},
					{Title: "CLAIM", Cell: func(v api.Volume) string { return v.Claim }},
					{Title: "SNAPSHOT", Need: true, Cell: func(v api.Volume) string { return v.Snapshot }},
					{Title: "SIZE", Cell: func(v api.Volume) string { return v.Size }},
					{Title: "CLASS", Need: true, Cell: func(v api.Volume) string { return v.Class }},
					{Title: "WHERE", Cell: func(v api.Volume) string {
						switch {
						case v.Direction == api.Incoming:
							return "here, of " + v.Peer
						case v.Snapshot != "" && v.Phase == api.SnapshotPending: // it is nowhere yet
							return ""
						case v.Peer == "":
							return "at home"
						}
						return "at " + v.Peer
					}},
					{Title: "STATE", Cell: func(v api.Volume) string {
						switch {
						case !v.KeptUntil.IsZero():
							return "kept until " + v.KeptUntil.UTC().Format("2006-01-02 15:04Z")
						case v.Move != nil:
							return moving(v.Move)
						}
						return v.Phase
					}},
					{Title: "VOLUME", Cell: func(v api.Volume) string { return v.Volume }, Wide: true},
				}, None: "no volume of this cluster is at a peer, none of a peer is here, and there are no snapshots",
				Notes: func(v api.Volume) []program.Note {
					if v.Why != "" {
						return program.Notes(v.Namespace+"/"+v.Snapshot, v.Why)
					}
					if v.Move == nil {
						return nil
					}
					return program.Notes(v.Namespace+"/"+v.Claim, v.Move.Why)
				},
			})
		},
	})
}

// moving says how far a volume is on its way, for a table.
func moving(m *api.Move) string {
	if m.Phase == api.MoveFailed {
		return "not moved to " + m.To
	}
	words := "moving to " + m.To + ", " + string(m.Phase)
	if m.OfBytes > 0 {
		words += fmt.Sprintf(" %d %%", min(100, 100*m.Bytes/m.OfBytes))
	}
	return words
}

func (p commands) volumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "volume",
		Short: "Move the volume of a claim to a peer, or fetch it home",
		Long:  "Do something with the volume of one claim. `kith volumes` lists them.",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.moveCommand(), p.fetchCommand())
	return c
}

func (p commands) moveCommand() *cobra.Command {
	var o api.MoveOptions
	var timeout time.Duration
	noWait := false
	c := p.Things(&cobra.Command{
		Use:   "move NAMESPACE/CLAIM",
		Short: "Move the volume of a claim to a peer, or home",
		Long: `Move the volume of a claim of the class kith to a peer that grants storage for it, or home.

Its files are copied while its pods go on. Then the pods are stopped, what they changed is copied, and every block of both copies
is compared; their controllers' new pods start at the new place, and the old copy is deleted. Names, modes, owners, times, hard
links, holes, ACLs and the attributes user.* are kept. A pod without a controller would not come back: it is to be deleted first.

A copy that is cut goes on where it was, also after a restart of either laptop. What breaks while the pods are stopped has them
start again at the old place. Until the volume is at the new place, --cancel leaves it where it is and deletes what was copied.
The command may be interrupted: the move goes on, and asking again waits for it.`,
		Example: "  kith volume move shop/data --to bob\n  kith volume move shop/data --to home --rate 20Mi\n  kith volume move shop/data --cancel",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeVolumes(),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.Namespace, o.Claim, err = api.ClaimRef(args[0]); err != nil {
				return err
			}
			o.Wait = !noWait
			if err := o.Check(); err != nil {
				return err
			}
			v, err := program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (api.Volume, error) {
				return kithd.MoveVolume(ctx, o, progress.Report)
			})
			return program.Answer(p.Program, v, err, p.showMoved)
		},
	})
	c.Flags().StringVar(&o.To, "to", "", "the `PEER` that it goes to, or home")
	c.Flags().StringVar(&o.Rate, "rate", "", "how many bytes a second it may take at most, for example 20Mi")
	c.Flags().BoolVar(&o.Cancel, "cancel", false, "leave a volume where it is that is on its way")
	c.Flags().BoolVar(&noWait, "no-wait", false, "begin, and do not wait until it is there")
	c.MarkFlagsOneRequired("to", "cancel")
	c.MarkFlagsMutuallyExclusive("to", "cancel")
	program.TimeoutFlag(c, &timeout, "how long to wait until it is there")
	c.RegisterFlagCompletionFunc("to", p.completePeers(-1))
	return c
}

func (p commands) fetchCommand() *cobra.Command {
	o := api.MoveOptions{To: api.Home, Wait: true}
	var timeout time.Duration
	c := p.Things(&cobra.Command{
		Use:   "fetch NAMESPACE/CLAIM",
		Short: "Bring the volume of a claim home",
		Long: `Bring the volume of a claim home: kith volume move --to home. That is possible, too, when there is no contract with the peer any
more, as long as it keeps the volume; ` + "`kith volumes`" + ` there says until when.`,
		Example: "  kith volume fetch shop/data",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeVolumes(),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.Namespace, o.Claim, err = api.ClaimRef(args[0]); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return err
			}
			v, err := program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (api.Volume, error) {
				return kithd.MoveVolume(ctx, o, progress.Report)
			})
			return program.Answer(p.Program, v, err, p.showMoved)
		},
	})
	c.Flags().StringVar(&o.Rate, "rate", "", "how many bytes a second it may take at most, for example 20Mi")
	program.TimeoutFlag(c, &timeout, "how long to wait until it is there")
	return c
}

func (p commands) showMoved(v api.Volume) {
	where := "at " + api.Home
	if v.Peer != "" {
		where = "at " + v.Peer
	}
	if v.Move != nil {
		where += ", " + moving(v.Move)
	}
	fmt.Fprintf(p.Out, "%s/%s: %s\n", screen.Clean(v.Namespace), screen.Clean(v.Claim), screen.Clean(where))
}

func (p commands) completeVolumes() program.Completion {
	return program.Complete(p.Program, 1, (*client.Client).Volumes, func(v api.Volume) string {
		if v.Direction == api.Incoming {
			return ""
		}
		return program.Word(v.Namespace+"/"+v.Claim, v.Volume, v.Size+" at "+v.Peer)
	})
}
