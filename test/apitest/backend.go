// Package apitest holds a Backend that lives in memory, for tests of those who serve or call the local API: it keeps
// what it is given, and answers as a daemon would whose peers always agree unless told otherwise. Nothing but tests
// may import it.
package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
)

// Backend implements localapi.Backend. Fill its fields before it is served.
type Backend struct {
	mu        sync.Mutex
	State     api.Status
	Known     []api.Peer
	Pending   []api.Request
	Signed    []api.Contract
	Accounts  []api.Account
	Listed    []api.Listed
	Files     []api.ReceiptFile
	Shared    []api.Policy
	Abroad    []api.Offload
	Here      []api.Guest
	Kept      []api.Volume
	Config    []byte
	Records   api.DNSRecords
	Verdict   api.VerifyResult
	Findings  []api.Finding     // of Doctor, for all peers
	FixError  string            // why FixFindings mends nothing
	Mends     map[string]string // of the name of a finding, another one that goes with it
	Report    []byte            // that BugReport gives
	Stored    []api.Image
	Use       []api.Top
	Reasons   map[string]api.Why     // of Why, by namespace/name
	Offers    map[string]api.Offered // of Offered, by peer
	Fail      error                  // when set, every call ends with it
	AskAnswer error                  // what a peer answers to Ask; nil is yes
	AskBlock  chan struct{}          // when set, Ask with Wait waits for it, or for ctx
	Calls     []string               // what was called, with its arguments
	Looking   chan struct{}          // when set, Doctor waits for it, or for ctx
	// AskConfirm, when set, is what Ask with Wait waits for a Confirm of.
	AskConfirm *api.Confirmation
	// Blockers and Effects are what CheckTether answers, of every peer.
	Blockers []api.Problem
	Effects  []string
	// TetherAnswer is what becomes of Tether and Untether after they reported TetherSteps; nil: it worked.
	TetherAnswer error
	TetherSteps  []api.Progress

	changed chan struct{}
	undo    *[2]api.Policy // what a policy was, and what was made of it
}

// Set has change made to the fields, and tells those who follow the snapshot.
func (b *Backend) Set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.ring()
}

// ring is called with mu held.
func (b *Backend) ring() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

func (b *Backend) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *Backend) Snapshot(context.Context) (api.Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.Snapshot{
		Status: b.State, Peers: slices.Clone(b.Known), Requests: slices.Clone(b.Pending), Policies: slices.Clone(b.Shared),
		Guests: slices.Clone(b.Here),
	}, b.called("Snapshot")
}

func (b *Backend) called(parts ...string) error {
	b.Calls = append(b.Calls, strings.Join(parts, " "))
	return b.Fail
}

// Called gives what was called so far.
func (b *Backend) Called() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Calls)
}

func (b *Backend) Status(context.Context) (api.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.State, b.called("Status")
}

func (b *Backend) Top(context.Context) ([]api.Top, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Use), b.called("Top")
}

func (b *Backend) NotRunning(context.Context) ([]api.Why, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []api.Why
	for _, name := range slices.Sorted(maps.Keys(b.Reasons)) {
		if w := b.Reasons[name]; w.State != api.PodReady && w.Guest == "" {
			list = append(list, w)
		}
	}
	return list, b.called("NotRunning")
}

func (b *Backend) Why(_ context.Context, o api.WhyOptions) (api.Why, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("Why", o.Kind, o.Namespace, o.Name); err != nil {
		return api.Why{}, err
	}
	why, known := b.Reasons[o.Namespace+"/"+o.Name]
	if !known {
		return why, api.NotFound(o.Kind, o.Namespace+"/"+o.Name, "kubectl get pods -A")
	}
	if o.Kind != "pod" {
		why.Of, why.Pods = o.Kind+"/"+o.Name, &api.WhyPods{All: 3, Ready: 2}
	}
	return why, nil
}

func (b *Backend) Version(context.Context) (api.Version, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.Version{Version: b.State.Version, Kubernetes: b.State.Engine.Version}, b.called("Version")
}

func (b *Backend) Kubeconfig(_ context.Context, uid int) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Config, b.called("Kubeconfig", strconv.Itoa(uid))
}

func (b *Backend) DirectKubeconfig(context.Context) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Config, b.called("DirectKubeconfig")
}

func (b *Backend) Peers(context.Context) ([]api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Known), b.called("Peers")
}

func (b *Backend) find(name string) (*api.Peer, error) {
	for i, p := range b.Known {
		if p.Name == name || p.ID == name || p.ShortID == name || slices.Contains(p.Addresses, name) {
			return &b.Known[i], nil
		}
	}
	return nil, api.NotFound("peer", name, "kith peers")
}

func (b *Backend) Peer(_ context.Context, name string) (api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("Peer", name); err != nil {
		return api.Peer{}, err
	}
	p, err := b.find(name)
	if err != nil {
		return api.Peer{}, err
	}
	return *p, nil
}

func (b *Backend) AddPeer(_ context.Context, add api.AddPeer) (api.Peer, error) {
	hostport := add.Address
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called("AddPeer", hostport); err != nil {
		return api.Peer{}, err
	}
	p := api.Peer{
		Name: "added", ID: "ADDED", ShortID: "added", Source: api.SourceManual,
		Addresses: []string{hostport}, Outgoing: api.StateNone, Incoming: api.StateNone,
	}
	b.Known = append(b.Known, p)
	return p, nil
}

func (b *Backend) DNSRecords(_ context.Context, o api.DNSRecordsOptions) (api.DNSRecords, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Records, b.called("DNSRecords", o.Query().Encode())
}

func (b *Backend) Ask(ctx context.Context, name string, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	said := []string{"Ask", name, ask.Resources.String()}
	for _, word := range []string{ask.Code, ask.ID} {
		if word != "" {
			said = append(said, word)
		}
	}
	if err := b.called(said...); err != nil {
		return api.Peer{}, err
	}
	p, err := b.find(name)
	if err != nil {
		return api.Peer{}, err
	}
	if p.Outgoing != api.StateConnected { // else it is a change, and the contract in force stays
		p.Outgoing, p.Code = api.StateRequested, "402817"
	}
	report(api.Progress{Message: "asked " + p.Name, Code: p.Code})
	if !ask.Wait {
		return *p, nil
	}
	if b.AskBlock != nil {
		b.mu.Unlock()
		select {
		case <-b.AskBlock:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			b.called("Ask left")
			return api.Peer{}, ctx.Err()
		}
	}
	if b.AskConfirm != nil && ask.Code == "" && ask.ID == "" {
		p.Confirm = b.AskConfirm
		report(api.Progress{Message: p.Name + " accepted", Code: p.Confirm.Code, Confirm: p.Confirm, Peer: p.Name})
		for p.Confirm != nil {
			b.mu.Unlock()
			changed := b.Changed()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			b.mu.Lock()
			if ctx.Err() != nil {
				return api.Peer{}, ctx.Err()
			}
			if p, err = b.find(name); err != nil {
				return api.Peer{}, err
			}
		}
		if p.Outgoing == api.StateDeclined {
			return api.Peer{}, &api.Error{Code: api.CodeDeclined, Message: "the request to " + p.Name + " was taken back"}
		}
		return *p, nil
	}
	if b.AskAnswer != nil {
		p.Outgoing = api.StateDeclined
		return api.Peer{}, b.AskAnswer
	}
	p.Outgoing, p.Code, p.Node = api.StateConnected, "", "kith-"+p.Name
	report(api.Progress{Message: p.Name + " accepted"})
	return *p, nil
}

// Confirm knows the code of Peer.Confirm, and takes any other for a no.
func (b *Backend) Confirm(_ context.Context, name string, confirm api.PeerConfirm) (api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called("Confirm", name, confirm.Code, fmt.Sprintf("terms=%t reject=%t", confirm.Terms, confirm.Reject)); err != nil {
		return api.Peer{}, err
	}
	p, err := b.find(name)
	if err == nil && slices.Contains(p.Addresses, name) { // those are for Ask
		err = api.NotFound("peer", name, "kith peers")
	}
	if err != nil {
		return api.Peer{}, err
	}
	asked := p.Confirm
	switch {
	case asked == nil:
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "there is nothing to confirm with " + p.Name}
	case !confirm.Reject && confirm.Code == asked.Code && (confirm.Terms || len(asked.Terms) == 0):
		p.Outgoing, p.Code, p.Confirm, p.Node = api.StateConnected, "", nil, "kith-"+p.Name
		return *p, nil
	}
	p.Outgoing, p.Code, p.Confirm = api.StateDeclined, "", nil
	return *p, &api.Error{Code: api.CodeDeclined, Message: "the request to " + p.Name + " was taken back, and nothing was signed"}
}

func (b *Backend) Unpeer(_ context.Context, name string, o api.EndOptions, report func(api.Progress)) (api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	called := words("Unpeer", name, o.DryRun)
	if o.DeleteVolumes {
		called = append(called, "deleteVolumes")
	}
	if o.LeaveVolumes {
		called = append(called, "leaveVolumes")
	}
	if err := b.called(called...); err != nil {
		return api.Peer{}, err
	}
	p, err := b.find(name)
	if err != nil {
		return api.Peer{}, err
	}
	if o.DryRun {
		return *p, nil
	}
	report(api.Progress{Message: "bringing pods home"})
	p.Outgoing, p.Incoming, p.Pods = api.StateNone, api.StateNone, api.PeerPods{}
	return *p, nil
}

func (b *Backend) ForgetPeer(_ context.Context, name string, dry api.DryRun) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called(words("ForgetPeer", name, dry)...); err != nil {
		return err
	}
	p, err := b.find(name)
	if err != nil || bool(dry) {
		return err
	}
	id := p.ID
	b.Known = slices.DeleteFunc(b.Known, func(p api.Peer) bool { return p.ID == id })
	return nil
}

func (b *Backend) Requests(context.Context) ([]api.Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Pending), b.called("Requests")
}

func (b *Backend) Request(_ context.Context, id string) (api.Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("Request", id); err != nil {
		return api.Request{}, err
	}
	for _, r := range b.Pending {
		if r.Direction == api.Incoming && (r.ID == id || r.Peer == id) {
			return r, nil
		}
	}
	return api.Request{}, api.NotFound("request", id, "kith requests")
}

func (b *Backend) Accept(_ context.Context, id string, shown api.Resources) (api.Request, error) {
	return b.answer(id, api.StateContracted, "Accept", id, shown.String())
}

func (b *Backend) Decline(_ context.Context, id string) (api.Request, error) {
	return b.answer(id, api.StateDeclined, "Decline", id)
}

func (b *Backend) answer(id string, becomes api.State, call ...string) (api.Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called(call...); err != nil {
		return api.Request{}, err
	}
	for i, r := range b.Pending {
		if r.ID != id && r.Peer != id {
			continue
		}
		if becomes == api.StateContracted && r.Refusal != "" {
			return api.Request{}, &api.Error{Code: api.CodeConflict, Message: "nothing can be granted to " + r.Peer, Reason: r.Refusal}
		}
		b.Pending = slices.Delete(b.Pending, i, i+1)
		r.State = becomes
		return r, nil
	}
	return api.Request{}, api.NotFound("request", id, "kith requests")
}

// Wake wakes a peer that is not reachable.
func (b *Backend) Wake(_ context.Context, name string) (api.Waking, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("Wake", name); err != nil {
		return api.Waking{}, err
	}
	p, err := b.find(name)
	switch {
	case err != nil:
		return api.Waking{}, err
	case p.Reachable:
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: p.Name + " is awake"}
	}
	return api.Waking{Peer: p.Name, Times: 1, PerDay: 3}, nil
}

// Withdraw takes back what Peer.Asked, Peer.Confirm or Outgoing say is asked.
func (b *Backend) Withdraw(_ context.Context, name string) (api.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called("Withdraw", name); err != nil {
		return api.Peer{}, err
	}
	p, err := b.find(name)
	switch {
	case err != nil:
		return api.Peer{}, err
	case p.Outgoing != api.StateRequested && len(p.Asked) == 0:
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "no request to " + p.Name + " waits for an answer", Do: "`kith requests` lists those that do"}
	case p.Outgoing == api.StateRequested:
		p.Outgoing = api.StateNone
	}
	p.Asked, p.Confirm, p.Code = nil, nil, ""
	b.Pending = slices.DeleteFunc(b.Pending, func(r api.Request) bool { return r.Direction == api.Outgoing && r.Peer == p.Name })
	return *p, nil
}

func (b *Backend) Contracts(context.Context) ([]api.Contract, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Signed), b.called("Contracts")
}

func (b *Backend) Receipts(_ context.Context, options api.ReceiptOptions) ([]api.Account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Accounts), b.called("Receipts", options.Query().Encode())
}

func (b *Backend) Catalogue(_ context.Context, options api.CatalogueOptions) ([]api.Listed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Listed), b.called("Catalogue", options.Peer)
}

func (b *Backend) ReceiptFile(_ context.Context, contract string) (api.ReceiptFile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.Files {
		if f.Contract == contract {
			return f, b.called("ReceiptFile", contract)
		}
	}
	return api.ReceiptFile{}, api.NotFound("contract", contract, "kith receipt list")
}

func (b *Backend) Contract(_ context.Context, name string) (api.Contract, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.Signed {
		if c.Name == name {
			return c, b.called("Contract", name)
		}
	}
	return api.Contract{}, cmp.Or(b.called("Contract", name), error(api.NotFound("contract", name, "kith contract list")))
}

func (b *Backend) VerifyContract(_ context.Context, c api.Contract) (api.VerifyResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Verdict, b.called("VerifyContract", c.ID, string(c.Document))
}

func (b *Backend) Policies(context.Context) ([]api.Policy, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Shared), b.called("Policies")
}

func (b *Backend) Offered(_ context.Context, peer string) (api.Offered, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	offered, known := b.Offers[peer]
	if err := b.called("Offered", peer); err != nil || known {
		return offered, err
	}
	return api.Offered{}, api.NotFound("peer", peer, "kith peers")
}

func (b *Backend) SetPolicy(_ context.Context, name string, change api.PolicyChange, dry api.DryRun) (api.Policy, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called(words("SetPolicy", name, dry)...); err != nil {
		return api.Policy{}, err
	}
	return b.setPolicy(name, change, dry)
}

// setPolicy is called with mu held.
func (b *Backend) setPolicy(name string, change api.PolicyChange, dry api.DryRun) (api.Policy, error) {
	at := slices.IndexFunc(b.Shared, func(p api.Policy) bool { return p.Name == name })
	was := api.Policy{Name: name, PodSecurity: api.PodSecurityBaseline}
	if at >= 0 {
		was = b.Shared[at]
	}
	if change.Generation != 0 && change.Generation != was.Generation {
		return was, &api.Error{Code: api.CodeConflict, Message: "nothing was changed", Reason: "the sharing policy " + name + " has changed since"}
	}
	is := change.Apply(was)
	is.Generation++
	shown := is
	shown.Changed = is.Since(was)
	if dry {
		return shown, nil
	}
	b.undo = &[2]api.Policy{was, is}
	if at < 0 {
		b.Shared = append(b.Shared, is)
		return shown, nil
	}
	if b.Shared[at] = is; name == api.DefaultPolicy {
		b.State.Sharing.Share, b.State.Sharing.Paused = is.Amounts.Share(), is.Paused
	}
	return shown, nil
}

// AwakeSince is when KeepAwake begins.
var AwakeSince = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (b *Backend) KeepAwake(_ context.Context, options api.AwakeOptions) (api.Awake, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called("KeepAwake", fmt.Sprintf("%+v", options)); err != nil {
		return api.Awake{}, err
	}
	is := api.Awake{}
	switch {
	case b.State.Awake == nil:
		return is, &api.Error{Code: api.CodeUnsupported, Message: "this machine cannot be kept awake", Reason: "logind does not run here"}
	case options.UntilGuestsEnd && b.State.Counts.Guests == 0:
		return is, &api.Error{Code: api.CodeConflict, Message: "this laptop is not kept awake", Reason: "no guest runs here", Do: "kith awake --for 2h keeps it awake without"}
	case !options.Off:
		is = api.Awake{Kept: true, Since: AwakeSince, Until: AwakeSince.Add(time.Duration(cmp.Or(options.For, api.MostAwake))), UntilGuestsEnd: options.UntilGuestsEnd}
	}
	b.State.Awake = &is
	return is, nil
}

func (b *Backend) Undo(_ context.Context, dry api.DryRun) (api.Policy, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	if err := b.called(words("Undo", "", dry)...); err != nil {
		return api.Policy{}, err
	}
	if b.undo == nil {
		return api.Policy{}, &api.Error{Code: api.CodeConflict, Message: "there is no change of sharing to take back"}
	}
	was, is := b.undo[0], b.undo[1]
	return b.setPolicy(is.Name, is.Undo(was), dry)
}

// words are those of a call in Calls.
func words(call, about string, dry api.DryRun) (all []string) {
	if all = append(all, call); about != "" {
		all = append(all, about)
	}
	if dry {
		all = append(all, "dry")
	}
	return all
}

func (b *Backend) Offloads(context.Context) ([]api.Offload, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Abroad), b.called("Offloads")
}

func (b *Backend) Offload(_ context.Context, namespace string, o api.OffloadOptions, report func(api.Progress)) (api.Offload, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	called := []string{"Offload", namespace, string(o.Strategy), string(o.Mapping), strings.Join(o.Peers, ",")}
	if o.Volumes == api.VolumesAnywhere {
		called = append(called, string(o.Volumes))
	}
	if err := b.called(called...); err != nil {
		return api.Offload{}, err
	}
	report(api.Progress{Message: "making the namespace at its peers"})
	out := api.Offload{Namespace: namespace, Strategy: o.Strategy, Mapping: o.Mapping, Volumes: o.Volumes, Peers: o.Peers}
	for _, p := range o.Peers {
		out.Twins = append(out.Twins, api.Twin{Peer: p, Namespace: namespace, Ready: true})
	}
	b.Abroad = append(b.Abroad, out)
	return out, nil
}

func (b *Backend) Unoffload(_ context.Context, namespace string, o api.UnoffloadOptions, report func(api.Progress)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	called := []string{"Unoffload", namespace}
	if o.Force {
		called = append(called, "force")
	}
	if o.Wait > 0 {
		called = append(called, o.Wait.String())
	}
	if o.DeleteVolumes {
		called = append(called, "deleteVolumes")
	}
	if o.DryRun {
		called = append(called, "dry")
	}
	if err := b.called(called...); err != nil {
		return err
	}
	if o.DryRun {
		if !slices.ContainsFunc(b.Abroad, func(x api.Offload) bool { return x.Namespace == namespace }) {
			return api.NotFound("offloaded namespace", namespace, "kith offload")
		}
		return nil
	}
	before := len(b.Abroad)
	b.Abroad = slices.DeleteFunc(b.Abroad, func(o api.Offload) bool { return o.Namespace == namespace })
	if len(b.Abroad) == before {
		return api.NotFound("offloaded namespace", namespace, "kith offload")
	}
	report(api.Progress{Message: "bringing pods home"})
	return nil
}

func (b *Backend) Volumes(context.Context) ([]api.Volume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Kept), b.called("Volumes")
}

func (b *Backend) MoveVolume(_ context.Context, o api.MoveOptions, report func(api.Progress)) (api.Volume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	called := []string{"MoveVolume", o.Namespace, o.Claim, o.To, o.Rate}
	if o.Wait {
		called = append(called, "wait")
	}
	if o.Cancel {
		called = append(called, "cancel")
	}
	if err := b.called(called...); err != nil {
		return api.Volume{}, err
	}
	for i := range b.Kept {
		v := &b.Kept[i]
		if v.Namespace != o.Namespace || v.Claim != o.Claim || v.Direction != api.Outgoing {
			continue
		}
		switch {
		case o.Cancel:
			v.Move = nil
		case !o.Wait:
			v.Move = &api.Move{To: o.To, Phase: api.MoveCopying}
		default:
			report(api.Progress{Message: "copying to " + o.To + " while its pods go on"})
			if v.Peer = o.To; o.To == api.Home {
				v.Peer = ""
			}
		}
		return *v, nil
	}
	return api.Volume{}, api.NotFound("claim", o.Namespace+"/"+o.Claim, "kubectl get pvc -A")
}

func (b *Backend) Guests(context.Context) ([]api.Guest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.Here), b.called("Guests")
}

func (b *Backend) CheckTether(_ context.Context, peer string, dry api.DryRun) (api.TetherCheck, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called(words("CheckTether", peer, dry)...); err != nil {
		return api.TetherCheck{}, err
	}
	p, err := b.find(peer)
	if err != nil {
		return api.TetherCheck{}, err
	}
	return api.TetherCheck{Peer: p.Name, Blockers: slices.Clone(b.Blockers), Effects: slices.Clone(b.Effects)}, nil
}

func (b *Backend) Tether(ctx context.Context, o api.TetherOptions, report func(api.Progress)) (api.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	said := []string{"Tether", o.Peer, string(cmp.Or(o.LocalWorkloads, api.KeepWorkloads))}
	for _, word := range []string{o.Code, o.ID} {
		if word != "" {
			said = append(said, word)
		}
	}
	if err := b.called(said...); err != nil {
		return api.Status{}, err
	}
	p, err := b.find(o.Peer)
	if err != nil {
		return api.Status{}, err
	}
	if err := b.step(ctx, p.Name, report); err != nil {
		return api.Status{}, err
	}
	if p, err = b.find(o.Peer); err != nil {
		return api.Status{}, err
	}
	p.Incoming, p.Tether = api.StateConnected, &api.PeerTether{Role: api.Laptop, Step: "tethered"}
	b.State.Mode = api.Tethered
	b.State.Tether = &api.Tether{Peer: p.Name, Step: "tethered", User: "kith:laptop:alice", Namespaces: api.List[string]{"team-a (edit)"}}
	return b.State, nil
}

// step reports the steps of a switch, and waits for the word on one that asks for it. It is called with mu held.
func (b *Backend) step(ctx context.Context, peer string, report func(api.Progress)) error {
	for _, step := range b.TetherSteps {
		p, err := b.find(peer)
		if err != nil {
			return err
		}
		p.Confirm = step.Confirm
		report(step)
		for p.Confirm != nil {
			b.mu.Unlock()
			select {
			case <-b.Changed():
			case <-ctx.Done():
			}
			b.mu.Lock()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if p, err = b.find(peer); err != nil {
				return err
			}
			if p.Outgoing == api.StateDeclined {
				return &api.Error{Code: api.CodeDeclined, Message: "the request to " + p.Name + " was taken back"}
			}
		}
	}
	return b.TetherAnswer
}

func (b *Backend) Untether(ctx context.Context, o api.UntetherOptions, report func(api.Progress)) (api.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.ring()
	said := []string{"Untether"}
	if o.Force {
		said = append(said, "force")
	}
	if o.Timeout > 0 {
		said = append(said, o.Timeout.String())
	}
	if err := b.called(said...); err != nil {
		return api.Status{}, err
	}
	if b.State.Tether == nil {
		return api.Status{}, &api.Error{Code: api.CodeConflict, Message: "this laptop is not tethered", Reason: "its own cluster decides what it runs"}
	}
	for _, step := range b.TetherSteps {
		report(step)
	}
	if b.TetherAnswer == nil {
		if p, err := b.find(b.State.Tether.Peer); err == nil {
			p.Incoming, p.Tether, p.Pods.Guests = api.StateNone, nil, 0
		}
		b.State.Mode, b.State.Tether = api.Autonomous, nil
	}
	return b.State, b.TetherAnswer
}

// FixFindings mends all findings of these names that have a Fix.
func (b *Backend) FixFindings(_ context.Context, fix api.DoctorFix, report func(api.Progress)) ([]api.Fixed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called(append([]string{"FixFindings"}, fix.Findings...)...); err != nil {
		return nil, err
	}
	var fixed []api.Fixed
	for i, f := range b.Findings {
		if len(f.Fix) == 0 || !slices.Contains(fix.Findings, f.Name) {
			continue
		}
		report(api.Progress{Message: "mending " + f.Name})
		now := api.Finding{Area: f.Area, Name: f.Name, State: api.CheckOK, What: "all is well"}
		if b.FixError != "" {
			now = f
		}
		fixed = append(fixed, api.Fixed{Finding: f, Did: f.Fix, Error: b.FixError, Now: now})
		b.Findings[i] = now
		for j, other := range b.Findings {
			if other.Name == b.Mends[f.Name] {
				b.Findings[j].State = api.CheckOK
			}
		}
	}
	return fixed, nil
}

// Images gives Stored.
func (b *Backend) Images(context.Context) ([]api.Image, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Stored, b.called("Images")
}

// LoadImages adds an image of the size of the archive; one that is no archive it refuses.
func (b *Backend) LoadImages(_ context.Context, archive io.Reader, name string) ([]api.Image, error) {
	n, err := io.Copy(io.Discard, archive)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(err, b.called("LoadImages", name)); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, &api.Error{Code: api.CodeInvalid, Message: "the archive was not loaded", Reason: "it is empty"}
	}
	loaded := []api.Image{{Name: cmp.Or(name, "docker.io/library/dev:1"), Digest: "sha256:" + strings.Repeat("a", 64), Size: n}}
	b.Stored = append(b.Stored, loaded...)
	return loaded, nil
}

// RemoveImage takes one of Stored.
func (b *Backend) RemoveImage(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("RemoveImage", name); err != nil {
		return err
	}
	before := len(b.Stored)
	if b.Stored = slices.DeleteFunc(b.Stored, func(i api.Image) bool { return i.Name == name }); len(b.Stored) == before {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no image %q here", name), Do: "`kith image ls` shows what there is"}
	}
	return nil
}

// BugReport writes Report.
func (b *Backend) BugReport(_ context.Context, to io.Writer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("BugReport"); err != nil {
		return err
	}
	_, err := to.Write(b.Report)
	return err
}

func (b *Backend) Doctor(ctx context.Context, peer string, report func(api.Progress)) ([]api.Finding, error) {
	b.mu.Lock()
	looking := b.Looking
	b.mu.Unlock()
	if looking != nil {
		select {
		case <-looking:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.called("Doctor", peer); err != nil {
		return nil, err
	}
	if peer != "" {
		if _, err := b.find(peer); err != nil {
			return nil, err
		}
	}
	var out []api.Finding
	for _, f := range b.Findings {
		if f.Peer == "" || peer == "" || f.Peer == peer {
			report(api.Progress{Message: f.What, Finding: &f})
			out = append(out, f)
		}
	}
	return out, nil
}
