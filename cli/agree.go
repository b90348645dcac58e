package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/trust/identity"
)

// ask asks a peer, and has the owner confirm what needs it, when there is somebody to ask.
func (p commands) ask(c *cobra.Command, timeout time.Duration, peer string, ask api.PeerAsk) (api.Peer, error) {
	return confirming(p, c, timeout, peer, ask.Wait, func(ctx context.Context, kithd *client.Client, report func(api.Progress)) (api.Peer, error) {
		return kithd.Ask(ctx, peer, ask, report)
	})
}

// confirming makes a long call in which a peer is asked. With wait, the owner is asked for his word as soon as the call waits for it.
func confirming[T any](p commands, c *cobra.Command, timeout time.Duration, peer string, wait bool, call func(context.Context, *client.Client, func(api.Progress)) (T, error)) (T, error) {
	return program.Long(p.Program, c, timeout, func(ctx context.Context, kithd *client.Client, progress *program.Progress) (T, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var seen *api.Confirmation
		answer, err := call(ctx, kithd, func(step api.Progress) {
			progress.Report(step)
			if step.Confirm == nil || !wait || seen != nil && seen.Code == step.Confirm.Code && slices.Equal(seen.Terms, step.Confirm.Terms) {
				return
			}
			seen = step.Confirm
			var word api.PeerConfirm
			var err error
			name := cmp.Or(step.Peer, peer) // an address is no name to confirm
			progress.Above(func() { word, err = p.agree(ctx, name, *step.Confirm) })
			if err == nil {
				_, err = kithd.ConfirmPeer(ctx, name, word)
			}
			if err != nil {
				cancel(err) // the request stands, or was taken back: there is nothing to wait for
			}
		})
		var why *api.Error
		if err != nil && errors.As(context.Cause(ctx), &why) {
			return answer, why
		}
		return answer, err
	})
}

func (p commands) confirmCommand() *cobra.Command {
	var word api.PeerConfirm
	c := p.Things(&cobra.Command{
		Use:   "confirm NAME|ID",
		Short: "Confirm the code of a peer that accepted, or its terms",
		Long: `Confirm the code of a peer that accepted, or its terms. Nothing is signed before.

The code shows that the key is the peer's, and nobody stands in between: the other owner must see the same one. With --code
give the code as it is on the other screen: another one than here may be mistyped once, and then takes the request back. A terminal asks
when no flag says anything; Enter alone means later, and the request stands. Terms that go beyond what was asked for, such as prices, need --terms.`,
		Example: "  kith confirm bob\n  kith confirm bob --code 069210\n  kith confirm bob --terms\n  kith confirm bob --reject",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if word.Code, err = api.ParseCode("code", word.Code); err != nil {
				return err
			}
			if word.Reject && (word.Code != "" || word.Terms) {
				return &api.Error{Code: api.CodeInvalid, Message: "--reject goes with neither --code nor --terms", Field: "reject"}
			}
			if word == (api.PeerConfirm{}) {
				if word, err = p.askToAgree(c, args[0]); err != nil {
					return err
				}
			}
			peer, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.Peer, error) {
				return kithd.ConfirmPeer(ctx, args[0], word)
			})
			if err == nil && peer.Confirm != nil {
				return stillToConfirm(args[0], *peer.Confirm)
			}
			return program.Answer(p.Program, peer, err, p.showAsked)
		},
	})
	c.Flags().StringVar(&word.Code, "code", "", "the six digits on the peer's screen")
	c.Flags().BoolVar(&word.Terms, "terms", false, "agree to the terms that go beyond what was asked for")
	c.Flags().BoolVar(&word.Reject, "reject", false, "the codes differ, or the terms are not agreed to: take the request back")
	return c
}

// askToAgree asks for the word on what a peer accepted.
func (p commands) askToAgree(c *cobra.Command, name string) (api.PeerConfirm, error) {
	peer, err := program.CallAbout(p.Program, c, (*client.Client).Peer, name)
	if err != nil {
		return api.PeerConfirm{}, err
	}
	if peer.Confirm == nil {
		return api.PeerConfirm{}, &api.Error{Code: api.CodeConflict, Message: "there is nothing to confirm with " + screen.Clean(peer.Name), Do: "`kith peers` shows where it stands"}
	}
	return p.agree(c.Context(), name, *peer.Confirm)
}

// agree asks the person at the terminal; without one the error says what to do.
func (p commands) agree(ctx context.Context, peer string, asked api.Confirmation) (word api.PeerConfirm, err error) {
	if !p.Asks() {
		return word, stillToConfirm(peer, asked)
	}
	in := bufio.NewReader(p.In)
	if asked.Code != "" {
		fmt.Fprintf(p.Err, "Does the screen of %s show the code %s too? [y/n, Enter: later] ", screen.Clean(peer), p.Style(true).Bold(identity.Spaced(screen.Clean(asked.Code))))
		yes, err := yesOrNo(ctx, in, peer)
		if err != nil || !yes {
			return api.PeerConfirm{Reject: err == nil}, err
		}
		word.Code = asked.Code
	}
	if len(asked.Terms) > 0 {
		fmt.Fprintf(p.Err, "%s has terms that were not asked for:\n", screen.Clean(peer))
		for _, term := range asked.Terms {
			fmt.Fprintf(p.Err, "  %s\n", screen.Clean(term))
		}
		fmt.Fprint(p.Err, "Agree to them? [y/n, Enter: later] ")
		yes, err := yesOrNo(ctx, in, peer)
		if err != nil || !yes {
			return api.PeerConfirm{Reject: err == nil}, err
		}
		word.Terms = true
	}
	return word, nil
}

// yesOrNo reads an answer that ends a request when it is no. So only the word itself is one: Enter and what is neither mean later.
func yesOrNo(ctx context.Context, in *bufio.Reader, peer string) (bool, error) {
	switch text, err := program.Line(ctx, in); {
	case errors.Is(err, io.EOF):
		return false, &api.Error{Code: api.CodeConfirm, Message: "nothing was confirmed", Reason: "there was no answer", Do: "`kith confirm` asks again while the request stands"}
	case err != nil:
		return false, err
	case text == "y" || text == "yes":
		return true, nil
	case text == "n" || text == "no":
		return false, nil
	}
	peer = screen.Clean(peer)
	return false, &api.Error{Code: api.CodeConfirm, Message: "nothing was confirmed, and nothing declined", Reason: "the answer was neither yes nor no",
		Do: fmt.Sprintf("`kith confirm %[1]s` asks again while the request stands; `kith confirm %[1]s --reject` takes it back", peer)}
}

// stillToConfirm says what is to be done where nobody can be asked.
func stillToConfirm(peer string, asked api.Confirmation) *api.Error {
	peer = screen.Clean(peer)
	e := &api.Error{Code: api.CodeConfirm, Message: peer + " accepted, and nothing is signed before you confirm"}
	if asked.Code != "" {
		e.Reason = fmt.Sprintf("the code here is %s, and the screen of %s must show the same", identity.Spaced(screen.Clean(asked.Code)), peer)
		e.Do = fmt.Sprintf("ask its owner for the code there and run `kith confirm %[1]s --code CODE`; `kith confirm %[1]s --reject` takes the request back", peer)
	}
	if len(asked.Terms) > 0 {
		var terms []string
		for _, term := range asked.Terms {
			terms = append(terms, screen.Clean(term))
		}
		e.Reason = strings.Join(screen.NonEmpty(e.Reason, "its terms were not asked for: "+strings.Join(terms, ", ")), "; ")
		if e.Do == "" {
			e.Do = fmt.Sprintf("`kith confirm %[1]s --terms` agrees, `kith confirm %[1]s --reject` takes the request back", peer)
		} else {
			e.Do = strings.Replace(e.Do, "--code CODE", "--code CODE --terms", 1)
		}
	}
	return e
}

// wholeID gives the whole ID that a person typed, as it is written out; "" when it is none. kithd checks its check digits.
func wholeID(typed string) string {
	text := strings.ToUpper(strings.ReplaceAll(typed, "-", ""))
	if len(text) != 56 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return ""
	}
	groups := make([]string, 0, 8)
	for ; text != ""; text = text[7:] {
		groups = append(groups, text[:7])
	}
	return strings.Join(groups, "-")
}

func (p commands) requestsCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:   "requests [ID|PEER...]",
		Short: "List the requests that wait for an answer",
		Long: `List the requests that wait for an answer: incoming ones for yours, outgoing ones for the peer's owner.

WOULD GET says of an incoming one what the peer gets if you accept now, which is as much of what it asks for as is shared and
free; where it has a contract already, what changes (cpu 1 → 2). Of an outgoing one it says what was asked for. A laptop that asks
to be tethered wants this cluster to run it: what its users get here is in the TetherPolicy that selects it (see docs/modes.md).`,
		Example: "  kith requests\n  kith accept $(kith requests -o json | jq -r '.[0].id')",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completeRequests(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[api.Request]{
				Get: (*client.Client).Requests, Match: func(r api.Request, name string) bool {
					return strings.HasPrefix(r.ID, name) || r.Peer == name || sameID(r.PeerID, name)
				}, Noun: "request", Others: "kith requests",
				Columns: []screen.Column[api.Request]{
					{Title: "ID", Cell: func(r api.Request) string { return r.ID }},
					{Title: "PEER", Cell: func(r api.Request) string { return r.Peer }},
					{Title: "CODE", Cell: func(r api.Request) string { return identity.Spaced(r.Code) }},
					{Title: "WOULD GET", Cell: amountsOf},
					{Title: "DIRECTION", Cell: func(r api.Request) string { return string(r.Direction) }, Wide: true},
					{Title: "ASKED", Cell: func(r api.Request) string { return r.Asked.String() }, Wide: true},
					{Title: "STATE", Cell: func(r api.Request) string { return string(r.State) }, Wide: true},
					{Title: "EXPIRES", Cell: func(r api.Request) string { return p.Until(r.Expires) }},
					{Title: "PEER ID", Cell: func(r api.Request) string { return r.PeerID }, Wide: true},
					{Title: "ADDRESS", Cell: func(r api.Request) string { return r.Address }, Wide: true},
					{Title: "CREATED", Cell: func(r api.Request) string { return p.Ago(r.Created) }, Wide: true},
				}, None: "no requests are waiting",
				Notes: func(r api.Request) []program.Note { return program.Notes(r.ID, r.Refusal, r.Means) },
			})
		},
	})
}

func (p commands) completeRequests(most int) program.Completion {
	return program.Complete(p.Program, most, (*client.Client).Requests, func(r api.Request) string {
		if r.Direction == api.Outgoing {
			return ""
		}
		if r.Tether {
			return program.Word(r.ID, r.ID, r.Peer+" asks this cluster to run it")
		}
		return program.Word(r.ID, r.ID, r.Peer+" would get "+r.Grants())
	})
}

// amountsOf says what an incoming request would get, and what an outgoing one asks for. Scratch space that does not change is
// left out: it makes a line too long for a terminal.
func amountsOf(r api.Request) string {
	r.Granted, r.InForce, r.Asked = maps.Clone(r.Granted), maps.Clone(r.InForce), maps.Clone(r.Asked)
	if is := map[api.Direction]api.Resources{api.Incoming: r.Granted, api.Outgoing: r.Asked}[r.Direction]; len(is) > 1 &&
		(len(r.InForce) == 0 || r.InForce[api.EphemeralStorage] == is[api.EphemeralStorage]) {
		for _, list := range []api.Resources{r.Granted, r.InForce, r.Asked} {
			delete(list, api.EphemeralStorage)
		}
	}
	switch {
	case r.Refusal != "": // it stands under the table
		return "nothing"
	case r.Tether && r.Direction == api.Incoming:
		return "asks this cluster to run it"
	case r.Tether:
		return "asked to run this laptop"
	case r.Direction == api.Incoming:
		return r.Grants()
	case len(r.Asked) == 0:
		return "asked all that is shared"
	}
	return "asked " + api.Change(r.InForce, r.Asked, nil)
}

func (p commands) acceptCommand() *cobra.Command {
	var sure bool
	c := p.Things(&cobra.Command{
		Use:   "accept ID|PEER",
		Short: "Accept a peer's request",
		Long: `Accept a peer's request for resources. A terminal shows what the peer gets, and asks whether to go on; no more than that is
granted, whatever becomes free meanwhile. Compare the code first: the other owner must see the same one. Elsewhere it wants --yes.

The request of a laptop to be run by this cluster is accepted in the same way. It becomes a node with all it has, and its users may do
here what the TetherPolicy that selects it says.`,
		Example: "  kith requests\n  kith accept alice\n  kith accept alice-7f3a --yes",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeRequests(1),
		RunE: func(c *cobra.Command, args []string) error {
			id := args[0]
			var shown api.Resources
			switch {
			case sure:
			case !p.Asks():
				return program.NoTerminal()
			default:
				var err error
				if id, shown, err = p.show(c, id); err != nil {
					return err
				}
			}
			r, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.Request, error) {
				return kithd.Accept(ctx, id, shown)
			})
			return program.Answer(p.Program, r, err, func(r api.Request) {
				gets := "it gets " + r.Grants()
				if r.Tether {
					gets = r.Grants()
				}
				fmt.Fprintf(p.Out, "accepted %s: %s\n", screen.Clean(r.Peer), screen.CleanLines(gets))
				if r.Code != "" {
					fmt.Fprintf(p.Out, "code %s: the owner of %s compares it now, before anything is signed\n", identity.Spaced(screen.Clean(r.Code)), screen.Clean(r.Peer))
				}
			})
		},
	})
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	return c
}

// show shows what a yes gives, asks whether it is meant, and gives the request by its ID with what was shown of it.
func (p commands) show(c *cobra.Command, ref string) (id string, shown api.Resources, err error) {
	r, err := program.CallAbout(p.Program, c, (*client.Client).Request, ref)
	if err != nil || r.Refusal != "" { // kithd will say so
		return ref, nil, err
	}
	question := fmt.Sprintf("%s would get %s.\n", screen.Clean(r.Peer), screen.CleanLines(r.Grants()))
	if r.Tether {
		question = fmt.Sprintf("%s is a laptop that asks to be run by this cluster. With a yes %s.\n", screen.Clean(r.Peer), screen.CleanLines(r.Grants()))
	}
	if r.Code != "" {
		question += fmt.Sprintf("Its owner's screen must show the code %s too. ", p.Style(true).Bold(identity.Spaced(screen.Clean(r.Code))))
	}
	return r.ID, r.Granted, p.Sure(c.Context(), question+"Accept?")
}

func (p commands) declineCommand() *cobra.Command {
	return p.Things(&cobra.Command{
		Use:     "decline ID|PEER",
		Short:   "Decline a peer's request",
		Example: "  kith decline alice\n  kith decline alice-7f3a",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeRequests(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := program.CallAbout(p.Program, c, (*client.Client).Decline, args[0])
			return program.Answer(p.Program, r, err, func(r api.Request) { fmt.Fprintf(p.Out, "declined %s\n", screen.Clean(r.Peer)) })
		},
	})
}
