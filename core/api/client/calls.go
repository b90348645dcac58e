package client

import (
	"context"
	"encoding/json"
	"io"
	"net/url"

	"kith.dev/core/api"
)

// Status asks how this machine's part of Kith is.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return do[api.Status](ctx, c, "GET", api.PathStatus, nil)
}

// Snapshot asks for all that a desktop shows.
func (c *Client) Snapshot(ctx context.Context) (api.Snapshot, error) {
	return do[api.Snapshot](ctx, c, "GET", api.PathSnapshot, nil)
}

// Version asks which kithd it is.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	return do[api.Version](ctx, c, "GET", api.PathVersion, nil)
}

// Kubeconfig gives a kubeconfig, YAML, of the user this process runs as: it leads to the front door, if there is one.
func (c *Client) Kubeconfig(ctx context.Context) ([]byte, error) {
	return do[[]byte](ctx, c, "GET", api.PathKubeconfig, nil)
}

// DirectKubeconfig gives the administrator's kubeconfig of the local cluster, YAML.
func (c *Client) DirectKubeconfig(ctx context.Context) ([]byte, error) {
	return do[[]byte](ctx, c, "GET", api.PathKubeconfig+"?direct=true", nil)
}

// Peers lists the known clusters.
func (c *Client) Peers(ctx context.Context) ([]api.Peer, error) {
	return do[[]api.Peer](ctx, c, "GET", api.PathPeers, nil)
}

// Peer gives one, by name, ID or unambiguous prefix of the ID.
func (c *Client) Peer(ctx context.Context, peer string) (api.Peer, error) {
	return do[api.Peer](ctx, c, "GET", api.Path(api.PathPeer, peer), nil)
}

// AddPeer makes the cluster known that is at host:port, to which a name in the DNS leads, or which a peer's catalogue shows.
func (c *Client) AddPeer(ctx context.Context, add api.AddPeer) (api.Peer, error) {
	return do[api.Peer](ctx, c, "POST", api.PathPeers, add)
}

// Catalogue lists what peers show of others.
func (c *Client) Catalogue(ctx context.Context, options api.CatalogueOptions) ([]api.Listed, error) {
	return do[[]api.Listed](ctx, c, "GET", api.PathCatalogue+"?"+options.Query().Encode(), nil)
}

// DNSRecords gives what to put into a zone for others to find this cluster by.
func (c *Client) DNSRecords(ctx context.Context, options api.DNSRecordsOptions) (api.DNSRecords, error) {
	return do[api.DNSRecords](ctx, c, "GET", api.PathDNSRecords+"?"+options.Query().Encode(), nil)
}

// ForgetPeer drops everything about a peer, from this side alone.
func (c *Client) ForgetPeer(ctx context.Context, peer string) error {
	return c.Do(ctx, "DELETE", api.Path(api.PathPeer, peer), nil, nil)
}

// Ask asks a peer for resources; report may be nil. When ctx ends the request stands all the same.
func (c *Client) Ask(ctx context.Context, peer string, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error) {
	return long[api.Peer](ctx, c, "POST", api.Path(api.PathAsk, peer), ask, report)
}

// ConfirmPeer answers what Peer.Confirm asks: the code that the other owner sees, a yes to terms, or a no.
func (c *Client) ConfirmPeer(ctx context.Context, peer string, confirm api.PeerConfirm) (api.Peer, error) {
	return do[api.Peer](ctx, c, "POST", api.Path(api.PathConfirm, peer), confirm)
}

// Withdraw takes back what was asked of a peer and not answered yet; a contract in force stays.
func (c *Client) Withdraw(ctx context.Context, peer string) (api.Peer, error) {
	return do[api.Peer](ctx, c, "POST", api.Path(api.PathWithdraw, peer), nil)
}

// Wake wakes the machine of a peer that sleeps.
func (c *Client) Wake(ctx context.Context, peer string) (api.Waking, error) {
	return do[api.Waking](ctx, c, "POST", api.Path(api.PathWake, peer), nil)
}

// Unpeer ends both directions of a peering; report may be nil.
func (c *Client) Unpeer(ctx context.Context, peer string, options api.EndOptions, report func(api.Progress)) (api.Peer, error) {
	path := api.Path(api.PathEnd, peer)
	if q := options.Query(); len(q) > 0 {
		path += "?" + q.Encode()
	}
	return long[api.Peer](ctx, c, "POST", path, nil, report)
}

// WouldUnpeer gives the peer if Unpeer would end what there is with it, and ends nothing.
func (c *Client) WouldUnpeer(ctx context.Context, peer string, options api.EndOptions) (api.Peer, error) {
	options.DryRun = true
	return do[api.Peer](ctx, c, "POST", api.Path(api.PathEnd, peer)+"?"+options.Query().Encode(), nil)
}

// WouldForget fails as ForgetPeer would, and forgets nothing.
func (c *Client) WouldForget(ctx context.Context, peer string) error {
	return c.Do(ctx, "DELETE", dry(api.Path(api.PathPeer, peer)), nil, nil)
}

// dry is the path of a call that only says what it would do.
func dry(path string) string { return path + "?" + api.DryRun(true).Query().Encode() }

// Requests lists the pending ones.
func (c *Client) Requests(ctx context.Context) ([]api.Request, error) {
	return do[[]api.Request](ctx, c, "GET", api.PathRequests, nil)
}

// Request gives an incoming one, by its ID, a prefix of it, or the asking peer's name.
func (c *Client) Request(ctx context.Context, id string) (api.Request, error) {
	return do[api.Request](ctx, c, "GET", api.Path(api.PathRequest, id), nil)
}

// Accept accepts a request. shown is Request.Granted as the owner saw it: no more than that is granted. nil: the owner saw no amounts.
func (c *Client) Accept(ctx context.Context, id string, shown api.Resources) (api.Request, error) {
	return do[api.Request](ctx, c, "POST", api.Path(api.PathAccept, id), api.Accept{Granted: shown})
}

// Decline declines a request.
func (c *Client) Decline(ctx context.Context, id string) (api.Request, error) {
	return do[api.Request](ctx, c, "POST", api.Path(api.PathDecline, id), nil)
}

// Contracts lists those that are kept here.
func (c *Client) Contracts(ctx context.Context) ([]api.Contract, error) {
	return do[[]api.Contract](ctx, c, "GET", api.PathContracts, nil)
}

// Contract gives one by name.
func (c *Client) Contract(ctx context.Context, name string) (api.Contract, error) {
	return do[api.Contract](ctx, c, "GET", api.Path(api.PathContract, name), nil)
}

// VerifyContract checks the signatures of a contract.
func (c *Client) VerifyContract(ctx context.Context, contract api.Contract) (api.VerifyResult, error) {
	return do[api.VerifyResult](ctx, c, "POST", api.PathVerify, contract)
}

// Receipts lists what was counted under contracts.
func (c *Client) Receipts(ctx context.Context, options api.ReceiptOptions) ([]api.Account, error) {
	path := api.PathReceipts
	if q := options.Query().Encode(); q != "" {
		path += "?" + q
	}
	return do[[]api.Account](ctx, c, "GET", path, nil)
}

// ReceiptFile gives the receipts of one contract as they were signed.
func (c *Client) ReceiptFile(ctx context.Context, contract string) (api.ReceiptFile, error) {
	return do[api.ReceiptFile](ctx, c, "GET", api.Path(api.PathReceipt, contract), nil)
}

// Policies lists what is offered to whom.
func (c *Client) Policies(ctx context.Context) ([]api.Policy, error) {
	return do[[]api.Policy](ctx, c, "GET", api.PathPolicies, nil)
}

// Offered says what a peer would be offered here now, and why no more.
func (c *Client) Offered(ctx context.Context, peer string) (api.Offered, error) {
	return do[api.Offered](ctx, c, "GET", api.Path(api.PathOffered, peer), nil)
}

// SetPolicy changes a policy, or makes it.
func (c *Client) SetPolicy(ctx context.Context, name string, change api.PolicyChange) (api.Policy, error) {
	return do[api.Policy](ctx, c, "PATCH", api.Path(api.PathPolicy, name), change)
}

// WouldSetPolicy gives the policy as SetPolicy would make it, and makes nothing.
func (c *Client) WouldSetPolicy(ctx context.Context, name string, change api.PolicyChange) (api.Policy, error) {
	return do[api.Policy](ctx, c, "PATCH", dry(api.Path(api.PathPolicy, name)), change)
}

// Undo takes back the last change of a policy that kithd made.
func (c *Client) Undo(ctx context.Context) (api.Policy, error) {
	return do[api.Policy](ctx, c, "POST", api.PathUndo, nil)
}

// WouldUndo gives the policy as Undo would make it, and makes nothing.
func (c *Client) WouldUndo(ctx context.Context) (api.Policy, error) {
	return do[api.Policy](ctx, c, "POST", dry(api.PathUndo), nil)
}

// Offloads lists the namespaces whose pods may go to peers.
func (c *Client) Offloads(ctx context.Context) ([]api.Offload, error) {
	return do[[]api.Offload](ctx, c, "GET", api.PathOffloads, nil)
}

// Offload lets the pods of a namespace go to peers; report may be nil.
func (c *Client) Offload(ctx context.Context, namespace string, options api.OffloadOptions, report func(api.Progress)) (api.Offload, error) {
	return long[api.Offload](ctx, c, "PUT", api.Path(api.PathOffload, namespace), options, report)
}

// Unoffload brings them home; report may be nil.
func (c *Client) Unoffload(ctx context.Context, namespace string, options api.UnoffloadOptions, report func(api.Progress)) error {
	path := api.Path(api.PathOffload, namespace)
	if q := options.Query(); len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.long(ctx, "DELETE", path, nil, nil, report)
}

// Guests lists the pods of peers that run here.
func (c *Client) Guests(ctx context.Context) ([]api.Guest, error) {
	return do[[]api.Guest](ctx, c, "GET", api.PathGuests, nil)
}

// Volumes lists the volumes of this cluster at peers, and of peers here.
func (c *Client) Volumes(ctx context.Context) ([]api.Volume, error) {
	return do[[]api.Volume](ctx, c, "GET", api.PathVolumes, nil)
}

// MoveVolume moves one of these to another place, or has it stay; report may be nil.
func (c *Client) MoveVolume(ctx context.Context, options api.MoveOptions, report func(api.Progress)) (api.Volume, error) {
	return long[api.Volume](ctx, c, "POST", api.PathMove, options, report)
}

// CheckTether says what a tether to a peer would change on this machine, and what prevents it.
func (c *Client) CheckTether(ctx context.Context, peer string) (api.TetherCheck, error) {
	return do[api.TetherCheck](ctx, c, "GET", api.PathTether+"?peer="+url.QueryEscape(peer), nil)
}

// WouldTether is CheckTether for a peer that is known already: nobody is made known by it.
func (c *Client) WouldTether(ctx context.Context, peer string) (api.TetherCheck, error) {
	return do[api.TetherCheck](ctx, c, "GET", dry(api.PathTether)+"&peer="+url.QueryEscape(peer), nil)
}

// Tether makes this laptop a node of a peer's cluster; report may be nil. When ctx ends the switch goes on.
func (c *Client) Tether(ctx context.Context, options api.TetherOptions, report func(api.Progress)) (api.Status, error) {
	return long[api.Status](ctx, c, "POST", api.PathTether, options, report)
}

// Untether ends that; report may be nil. When ctx ends the switch goes on.
func (c *Client) Untether(ctx context.Context, options api.UntetherOptions, report func(api.Progress)) (api.Status, error) {
	return long[api.Status](ctx, c, "POST", api.PathUntether, options, report)
}

// Doctor looks for what keeps Kith from working: on this machine and on the way to the peer, or to all with "". report,
// which may be nil, gets the findings as they come.
func (c *Client) Doctor(ctx context.Context, peer string, report func(api.Progress)) ([]api.Finding, error) {
	path := api.PathDoctor
	if peer != "" {
		path += "?peer=" + url.QueryEscape(peer)
	}
	return long[[]api.Finding](ctx, c, "GET", path, nil, report)
}

// FixFindings mends findings, as far as that is safe, and looks again; report may be nil.
func (c *Client) FixFindings(ctx context.Context, fix api.DoctorFix, report func(api.Progress)) ([]api.Fixed, error) {
	return long[[]api.Fixed](ctx, c, "POST", api.PathDoctorFix, fix, report)
}

// Images lists the images of this laptop's container runtime.
func (c *Client) Images(ctx context.Context) ([]api.Image, error) {
	return do[[]api.Image](ctx, c, "GET", api.PathImages, nil)
}

// RemoveImage takes the name of an image away.
func (c *Client) RemoveImage(ctx context.Context, name string) error {
	return c.Do(ctx, "DELETE", api.PathImages+"?name="+url.QueryEscape(name), nil, nil)
}

// LoadImages sends an archive of images, a tar, and gives what was in it; name is for an image that has none there.
func (c *Client) LoadImages(ctx context.Context, archive io.Reader, name string) (loaded []api.Image, err error) {
	body, err := c.exchange(ctx, "POST", api.PathImages+"?name="+url.QueryEscape(name), "application/x-tar", "application/json", archive)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return loaded, understood(json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&loaded))
}

// Why says why a pod is where it is, or does not run.
func (c *Client) Why(ctx context.Context, options api.WhyOptions) (api.Why, error) {
	return do[api.Why](ctx, c, "GET", api.PathWhy+"?"+options.Query().Encode(), nil)
}

// NotRunning tells why of each pod of this cluster that is neither ready nor done.
func (c *Client) NotRunning(ctx context.Context) ([]api.Why, error) {
	return do[[]api.Why](ctx, c, "GET", api.PathNotRunning, nil)
}

// Top tells what is used under each contract.
func (c *Client) Top(ctx context.Context) ([]api.Top, error) {
	return do[[]api.Top](ctx, c, "GET", api.PathTop, nil)
}

// KeepAwake keeps this machine from being suspended, or lets it be again.
func (c *Client) KeepAwake(ctx context.Context, options api.AwakeOptions) (api.Awake, error) {
	return do[api.Awake](ctx, c, "POST", api.PathAwake, options)
}

// Web opens the page for this user, and says where it is.
func (c *Client) Web(ctx context.Context, options api.WebOptions) (api.Web, error) {
	return do[api.Web](ctx, c, "POST", api.PathWeb, options)
}

// BugReport gives a bug report, a tar of some megabytes at most, compressed with gzip.
func (c *Client) BugReport(ctx context.Context) ([]byte, error) {
	return do[[]byte](ctx, c, "GET", api.PathBugReport, nil)
}

func do[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	err = c.Do(ctx, method, path, in, &out)
	return out, err
}

func long[T any](ctx context.Context, c *Client, method, path string, in any, report func(api.Progress)) (out T, err error) {
	err = c.long(ctx, method, path, in, &out, report)
	return out, err
}
