package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) peerCommand() *cobra.Command {
	var amounts program.Amounts
	var wait bool
	var timeout time.Duration
	var code, network string
	var withdraw bool
	c := p.Things(&cobra.Command{
		Use:   "peer NAME|ID|HOST:PORT",
		Short: "Ask a peer for resources, and wait for its answer",
		Long: `Ask a peer for resources, and wait for its answer.

Both owners see the same six-digit code. The other one compares it before accepting; then a terminal asks you whether it is
the same on both screens, and only then is anything signed. Elsewhere the command ends there (exit code 8) while the request
stands: ask the other owner for the code on his screen and give it with --code, here or to "kith confirm".

A peer that is named by its whole ID, as its owner gave it to you, needs no code: the ID is the hash of its key. A peer that
was confirmed once is known by its key.

Without amounts all that the peer shares is asked for, devices such as GPUs too. --gpu asks for the one kind of GPU that the peer
shares, --resource for any other device by its name. Asking a connected peer for other amounts changes the contract, once its
owner accepts; what is not named stays as it is, and what would change nothing is not asked. A peer may grant less than was
asked for: that is said here, and by "kith peers".

--network none asks for a contract without a tunnel, for batch work: pods there get logs, exec, configuration, secrets, images and,
if the peer allows it, the internet; they reach nothing of this cluster, and nothing here reaches them. Only pods go there that say
so ("kith offload NAMESPACE --network none"). A contract in force keeps its network, or goes on without one, until it ends.
Who asks again without --network asks for the same; --network tunnel takes it back.

When you stop waiting, the request stands until it is answered or expires; asking again waits for the same answer. --withdraw
takes it back, and leaves a contract in force as it is.`,
		Example: "  kith peer bob\n  kith peer bob --cpu 2 --memory 4Gi --pods 20\n  kith peer bob --gpu 1\n  kith peer bob --network none\n  kith peer bob --code 069210\n  kith peer 192.168.1.20:6450 --timeout 2m\n  kith peer bob --wait=false\n  kith peer bob --withdraw",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			asked, err := amounts.Asked()
			if err != nil {
				return err
			}
			if withdraw && (len(asked) > 0 || code != "" || network != "") {
				return &api.Error{Code: api.CodeInvalid, Message: "--withdraw goes with neither amounts nor --code or --network", Field: "withdraw"}
			}
			if err := (api.PeerAsk{Network: network}).Check(); err != nil {
				return err
			}
			if withdraw {
				return p.withdraw(c, args[0])
			}
			if code, err = api.ParseCode("code", code); err != nil {
				return err
			}
			peer, err := p.ask(c, timeout, args[0], api.PeerAsk{Resources: asked, Wait: wait, Code: code, ID: wholeID(args[0]), Network: network})
			if errors.Is(err, &api.Error{Code: api.CodeTimeout}) && timeout > 0 {
				return &api.Error{
					Code: api.CodeTimeout, Message: fmt.Sprintf("%s has not answered within %s", args[0], timeout),
					Reason: "the request stands until it is answered or expires",
					Do:     fmt.Sprintf("`kith peer %[1]s` waits again, `kith peer %[1]s --withdraw` takes it back", args[0]),
				}
			}
			return program.Answer(p.Program, peer, err, p.showAsked)
		},
	})
	amounts.Flags(c)
	c.Flags().StringVar(&code, "code", "", "confirm the request that is pending: the six digits on the peer's screen")
	c.Flags().StringVar(&network, "network", "", "none: ask for a contract without a network between the clusters; tunnel takes that back; without it, as asked for before")
	c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{api.NetworkNone, api.NetworkTunnel}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&withdraw, "withdraw", false, "take back the request that waits for an answer; a contract in force stays")
	c.Flags().BoolVar(&wait, "wait", true, "wait until the peer is connected or has declined")
	program.TimeoutFlag(c, &timeout, "how long to wait for the answer")
	c.AddCommand(p.peerAddCommand())
	return c
}

// withdraw takes back what waits for a peer's answer.
func (p commands) withdraw(c *cobra.Command, name string) error {
	peer, err := program.CallAbout(p.Program, c, (*client.Client).Withdraw, name)
	return program.Answer(p.Program, peer, err, func(peer api.Peer) {
		fmt.Fprintf(p.Out, "the request to %s is taken back\n", screen.Clean(peer.Name))
		if peer.Outgoing == api.StateConnected {
			p.showAsked(peer)
		}
	})
}

func (p commands) showAsked(peer api.Peer) {
	style := p.Style(p.OutTerminal)
	name := screen.Clean(peer.Name)
	if peer.Unchanged {
		fmt.Fprintf(p.Out, "nothing changes: %s grants that already\n", name)
	}
	if peer.Tether != nil && peer.Tether.Role == api.Laptop && peer.Outgoing == api.StateNone {
		fmt.Fprintf(p.Out, "%s agreed to run this laptop: `kith status` shows how far that is\n", name)
		return
	}
	switch peer.Outgoing {
	case api.StateConnected:
		if len(peer.Asked) > 0 && peer.Confirm == nil {
			fmt.Fprintf(p.Out, "asked %s for %s; it waits for the answer of its owner\n", name, screen.CleanLines(api.Change(peer.Offered, peer.Asked, nil)))
			return
		}
		words := fmt.Sprintf("%s is %s: node %s", name, style.Word("connected"), screen.Clean(peer.Node))
		if len(peer.Offered) > 0 {
			words += " with " + screen.CleanLines(peer.Offered.String())
		}
		fmt.Fprintln(p.Out, words)
		if peer.Less != "" {
			fmt.Fprintln(p.Out, screen.CleanLines(peer.Less))
		}
	case api.StateRequested:
		if peer.Confirm != nil {
			fmt.Fprintf(p.Out, "%s: `kith confirm %s`\n", screen.Clean(peer.Why), name)
			return
		}
		fmt.Fprintf(p.Out, "asked %s; it waits for the answer of its owner\n", name)
	default:
		words := fmt.Sprintf("%s is %s", name, style.Word(screen.Clean(string(peer.Outgoing))))
		if peer.Why != "" {
			words += ": " + screen.Clean(peer.Why)
		}
		fmt.Fprintln(p.Out, words)
	}
}

func (p commands) peerAddCommand() *cobra.Command {
	var from string
	c := p.Things(&cobra.Command{
		Use:   "add NAME|HOST:PORT",
		Short: "Make a cluster known that is not found by itself",
		Long: `Make a cluster known that is not found by itself.

A NAME in the DNS leads to what its SRV records name ("kith dns-records" prints them), or, when it has none, to the host of that name at
port 6450. If a TXT record there has the fingerprint of a key, nobody with another key is added. The name is followed from then on:
when its records change, the peer is looked for where they lead. An address is kept as it is.

With --from, NAME is who has that name, or ID, in the catalogue of a peer ("kith catalogue"). Whoever answers there must have the key that
signed the listing; the code is compared as always when you peer.`,
		Example: "  kith peer add 192.168.1.20:6450\n  kith peer add corp.example.org\n  kith peer add bob.example.org:7000\n  kith peer add '[2001:db8::20]:6450'\n  kith peer add fe80::20%wlan0\n  kith peer add carol --from bob",
		Args:    program.Between(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			peer, err := program.CallAbout(p.Program, c, (*client.Client).AddPeer, api.AddPeer{Address: args[0], From: from})
			return program.Answer(p.Program, peer, err, func(peer api.Peer) {
				fmt.Fprintf(p.Out, "found %s, ID %s\n", screen.Clean(peer.Name), screen.Clean(peer.ID))
			})
		},
	})
	c.Flags().StringVar(&from, "from", "", "`PEER` in whose catalogue it is")
	c.RegisterFlagCompletionFunc("from", p.completePeers(-1))
	return c
}

func (p commands) unpeerCommand() *cobra.Command {
	var sure, all, dry, deleteVolumes, leaveVolumes bool
	var timeout time.Duration
	c := p.Things(&cobra.Command{
		Use:   "unpeer NAME|ID",
		Short: "End a peering, both directions",
		Long: `End a peering, both directions.

Pods of this cluster that run at the peer come home with their grace period; guests of the peer here end. A request
that is pending is taken back. With pods on the way, a terminal asks first. While volumes of this cluster are at the peer, it
names them and ends nothing, unless --delete-volumes says that they and their claims may go, or --leave-volumes that they stay
there: the peer keeps them for as long as the contract says, seven days or what its owner chose, and gives them back when you
peer again. --all ends every peering at once, as the removal of Kith does, so that nobody keeps resources for a laptop that
does not come back.`,
		Example: "  kith unpeer bob\n  kith unpeer bob --dry-run\n  kith unpeer bob --yes --timeout 2m\n  kith unpeer --all",
		Args:    program.Between(0, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			options := api.EndOptions{DeleteVolumes: api.DeleteVolumes(deleteVolumes), LeaveVolumes: leaveVolumes, DryRun: api.DryRun(dry)}
			switch {
			case all && len(args) > 0:
				return &api.Error{Code: api.CodeInvalid, Message: "--all goes with no name of a peer", Field: "all"}
			case all:
				return p.unpeerAll(c, sure, options, timeout)
			case len(args) == 0:
				return &api.Error{Code: api.CodeInvalid, Message: "which peer?", Do: "`kith peers` lists them, and `kith unpeer --all` ends the peerings with all of them", Field: "peer"}
			}
			if dry {
				peer, err := p.wouldUnpeer(c, args[0], options)
				return program.Answer(p.Program, peer, err, func(peer api.Peer) { p.Would(endings(peer)...) })
			}
			if _, err := p.confirmMoves(c, sure, args[0]); err != nil {
				return err
			}
			peer, err := program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (api.Peer, error) {
				return kithd.Unpeer(ctx, args[0], options, progress.Report)
			})
			return program.Answer(p.Program, peer, err, p.showEnded)
		},
	})
	c.Flags().BoolVar(&all, "all", false, "end the peerings with all peers")
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&deleteVolumes, "delete-volumes", false, "delete the volumes of this cluster at the peer, with their claims and all data")
	c.Flags().BoolVar(&leaveVolumes, "leave-volumes", false, "leave the volumes of this cluster at the peer, which keeps them for as long as the contract says")
	c.MarkFlagsMutuallyExclusive("delete-volumes", "leave-volumes")
	program.DryRunFlag(c, &dry)
	program.TimeoutFlag(c, &timeout, "how long to wait for the end")
	return c
}

func (p commands) showEnded(peer api.Peer) {
	fmt.Fprintf(p.Out, "the peering with %s has ended\n", screen.Clean(peer.Name))
}

// unpeerAll ends all peerings side by side: one that takes long, for its pods have long grace periods, holds up no other. With -o the
// peers are a list.
func (p commands) unpeerAll(c *cobra.Command, sure bool, options api.EndOptions, timeout time.Duration) error {
	peers, err := program.Call(p.Program, c, (*client.Client).Peers)
	if err != nil {
		return err
	}
	peers = slices.DeleteFunc(peers, func(x api.Peer) bool { return !ends(x) })
	if options.DryRun {
		return p.wouldUnpeerAll(c, peers, options)
	}
	var moves []string
	for _, x := range peers {
		moves = append(moves, screen.NonEmpty(moved(x))...)
	}
	if len(moves) > 0 && !sure && p.Asks() {
		if err := p.Sure(c.Context(), strings.Join(moves, "; ")+". Go on?"); err != nil {
			return err
		}
	}
	answers, errs := make([]api.Peer, len(peers)), make([]error, len(peers))
	_, _ = program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (any, error) {
		var running sync.WaitGroup
		for i, x := range peers {
			running.Go(func() { answers[i], errs[i] = kithd.Unpeer(ctx, x.ID, options, progress.Report) })
		}
		running.Wait()
		return nil, nil
	})
	ended := []api.Peer{}
	var failed []string
	var code api.Code
	for i, err := range errs {
		if err == nil {
			ended = append(ended, answers[i])
			continue
		}
		failed = append(failed, peers[i].Name+": "+err.Error())
		if e := (&api.Error{}); errors.As(err, &e) {
			code = cmp.Or(code, e.Code)
		}
	}
	if err := program.Answer(p.Program, ended, nil, func(ended []api.Peer) {
		for _, x := range ended {
			p.showEnded(x)
		}
	}); err != nil || len(failed) == 0 {
		return err
	}
	return &api.Error{Code: cmp.Or(code, api.CodeInternal), Message: screen.Count(len(failed), "peering") + " did not end", Reason: strings.Join(failed, "\n")}
}

// wouldUnpeer asks what the end of a peering would do.
func (p commands) wouldUnpeer(c *cobra.Command, peer string, options api.EndOptions) (api.Peer, error) {
	return program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.Peer, error) {
		return kithd.WouldUnpeer(ctx, peer, options)
	})
}

// wouldUnpeerAll says what the end of all peerings would do.
func (p commands) wouldUnpeerAll(c *cobra.Command, peers []api.Peer, options api.EndOptions) error {
	would := []api.Peer{}
	var effects []string
	for _, x := range peers {
		peer, err := p.wouldUnpeer(c, x.ID, options)
		if err != nil {
			return err
		}
		would, effects = append(would, peer), append(effects, endings(peer)...)
	}
	return program.Answer(p.Program, would, nil, func([]api.Peer) { p.Would(effects...) })
}

// ends reports whether there is a peering to end, or a question to take back. A peer's own question is answered, not ended.
func ends(x api.Peer) bool {
	agreed := []api.State{api.StateContracted, api.StateConnected, api.StateUnreachable, api.StateEnding}
	return slices.Contains(agreed, x.Incoming) || slices.Contains(append(agreed, api.StateRequested), x.Outgoing)
}

func (p commands) forgetCommand() *cobra.Command {
	var sure, dry bool
	c := &cobra.Command{
		Use:   "forget NAME|ID",
		Short: "Drop everything about a peer that is gone for good",
		Long: `Drop everything about a peer that is gone for good, from this side alone: it need not be reachable.

Pods that run there are started at home again. When the peer comes back it is a stranger.`,
		Example: "  kith forget bob\n  kith forget bob --dry-run",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			if dry {
				peer, err := program.CallAbout(p.Program, c, (*client.Client).Peer, args[0])
				if err == nil {
					_, err = program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (any, error) {
						return nil, kithd.WouldForget(ctx, args[0])
					})
				}
				if err == nil {
					p.Would(append(endings(peer), screen.Clean(peer.Name)+" is forgotten: when it comes back it is a stranger")...)
				}
				return err
			}
			peer, err := p.confirmMoves(c, sure, args[0])
			if err != nil {
				return err
			}
			_, err = program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (any, error) {
				return nil, kithd.ForgetPeer(ctx, args[0])
			})
			if err == nil {
				fmt.Fprintf(p.Out, "%s is forgotten\n", screen.Clean(peer.Name))
			}
			return err
		},
	}
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	program.DryRunFlag(c, &dry)
	return c
}

// confirmMoves asks before pods move, or end, with the end of a peering. Scripts are not asked: they have said what they want.
func (p commands) confirmMoves(c *cobra.Command, sure bool, name string) (api.Peer, error) {
	peer, err := program.CallAbout(p.Program, c, (*client.Client).Peer, name)
	if will := moved(peer); err == nil && will != "" && !sure && p.Asks() {
		err = p.Sure(c.Context(), will+". Go on?")
	}
	return peer, err
}

// moved says what the end of a peering does to pods; "" when there are none.
func moved(peer api.Peer) string { return strings.Join(moves(peer), "; ") }

// endings says all that the end of a peering does.
func endings(peer api.Peer) []string {
	name, effects := screen.Clean(peer.Name), moves(peer)
	switch agreed := ends(api.Peer{Incoming: peer.Outgoing}); {
	case agreed && peer.Node != "":
		effects = append(effects, fmt.Sprintf("the contract by which %s gives %s ends, and node %s goes", name, peer.Offered, screen.Clean(peer.Node)))
	case agreed:
		effects = append(effects, fmt.Sprintf("the contract by which %s gives %s ends", name, peer.Offered))
	case peer.Outgoing == api.StateRequested:
		effects = append(effects, "the request to "+name+" is taken back")
	}
	if ends(api.Peer{Incoming: peer.Incoming}) {
		effects = append(effects, "the contract by which this laptop gives to "+name+" ends")
	}
	return effects
}

// moves are the parts of moved.
func moves(peer api.Peer) (parts []string) {
	if n := peer.Pods.Abroad; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of this cluster at %s will move", screen.Count(n, "pod"), screen.Clean(peer.Name)))
	}
	if n := peer.Pods.Guests; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s here will end", screen.Count(n, "pod"), screen.Clean(peer.Name)))
	}
	return parts
}
