package localapi

import (
	"context"
	"io"

	"kith.dev/core/api"
)

// Backend is what the local API can ask the daemon for.
//
// Methods are called from many goroutines at once and must return soon after ctx ends; short ones get a deadline.
// With dry they say what they would do, or refuse it as ever, and write nothing.
//
// Errors are *api.Error; anything else is shown as an internal error. A peer is named by its name, its ID, a
// prefix of the ID that is not ambiguous, or (Peer, Ask, Tether) the host:port of its peer API. What a method returns
// belongs to the caller.
//
// Methods with a report function take long. They call it, from one goroutine at a time and not after they
// returned, with each step that a person would like to read. When ctx ends the caller has stopped waiting, which
// takes nothing back: a delivered request stands until it is answered or expires, an unpeering goes on.
type Backend interface {
	Status(ctx context.Context) (api.Status, error)
	// Snapshot gives all that a desktop shows.
	Snapshot(ctx context.Context) (api.Snapshot, error)
	// Changed gives a channel that is closed when Snapshot may have another answer than before: nobody looks again without.
	// Numbers that move by themselves (api.Snapshot.Steady) are no other answer.
	Changed() <-chan struct{}
	Version(ctx context.Context) (api.Version, error)
	// Kubeconfig gives a kubeconfig of this user, YAML, that leads to the front door, or DirectKubeconfig's while there is none.
	Kubeconfig(ctx context.Context, uid int) ([]byte, error)
	// DirectKubeconfig gives the administrator's kubeconfig of the local cluster, YAML. CodeNotReady while there is none.
	DirectKubeconfig(ctx context.Context) ([]byte, error)

	// Peers gives all known clusters, by name.
	Peers(ctx context.Context) ([]api.Peer, error)
	Peer(ctx context.Context, peer string) (api.Peer, error)
	// AddPeer dials a host:port, or where a name leads (its SRV records, else the host at the default port), learns the cluster's
	// key and keeps it as a peer found manually. A name is followed from then on. Adding a known peer adds the address.
	AddPeer(ctx context.Context, add api.AddPeer) (api.Peer, error)
	// Catalogue reads the catalogue of one peer, or of all that keep one and are there.
	Catalogue(ctx context.Context, options api.CatalogueOptions) ([]api.Listed, error)
	// DNSRecords gives what to put into a zone for others to find this cluster by.
	DNSRecords(ctx context.Context, options api.DNSRecordsOptions) (api.DNSRecords, error)
	// Ask asks the peer for resources; a host:port that is not known is added first. With ask.Wait it returns when
	// the peer is connected, else CodeDeclined or CodeExpired; without, when the request is delivered. The code is
	// reported as soon as it is known. Asking a connected peer for other amounts makes a new revision of the contract,
	// which keeps what is not named; what changes nothing is not asked, and Peer.Unchanged says so.
	Ask(ctx context.Context, peer string, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error)
	// Confirm answers what api.Peer.Confirm asks, once the peer accepted and before anything is signed. Another code than
	// the one here takes the request back: CodeDeclined, with words. CodeConflict when there is nothing to confirm. The
	// Server has checked the form of the code, and taken the space out of it.
	Confirm(ctx context.Context, peer string, confirm api.PeerConfirm) (api.Peer, error)
	// Withdraw takes back what was asked of the peer and not answered yet, and nothing else: a contract in force stays as it is.
	// CodeConflict when nothing waits.
	Withdraw(ctx context.Context, peer string) (api.Peer, error)
	// Wake wakes the machine of a peer that said before it was suspended that this one may: CodeConflict when it may not, with why.
	Wake(ctx context.Context, peer string) (api.Waking, error)
	// Unpeer ends what this cluster gets from the peer and what it gives it, whichever there is.
	Unpeer(ctx context.Context, peer string, options api.EndOptions, report func(api.Progress)) (api.Peer, error)
	// ForgetPeer drops everything about a peer, from this side alone, reachable or not.
	ForgetPeer(ctx context.Context, peer string, dry api.DryRun) error

	// Requests gives the pending ones of both directions, oldest first.
	Requests(ctx context.Context) ([]api.Request, error)
	// Request gives an incoming one: its ID, a prefix of the ID, or the asking peer's name.
	Request(ctx context.Context, request string) (api.Request, error)
	// Accept accepts an incoming request, named as for Request; no more is granted than shown, when that is not empty. CodeExpired
	// when it is too late, CodeConflict when nothing can be granted.
	Accept(ctx context.Context, request string, shown api.Resources) (api.Request, error)
	// Decline declines one. CodeExpired when it is too late.
	Decline(ctx context.Context, request string) (api.Request, error)

	Contracts(ctx context.Context) ([]api.Contract, error)
	Contract(ctx context.Context, name string) (api.Contract, error)
	// VerifyContract checks document and signatures of a contract, known here or not. That it does not verify is a
	// result, not an error.
	VerifyContract(ctx context.Context, contract api.Contract) (api.VerifyResult, error)

	// Receipts gives what was counted under contracts, also under those that ended.
	Receipts(ctx context.Context, options api.ReceiptOptions) ([]api.Account, error)
	// ReceiptFile gives the receipts of one contract as they were signed; named by its ID or the peer's name. CodeNotFound, CodeConflict.
	ReceiptFile(ctx context.Context, contract string) (api.ReceiptFile, error)

	Policies(ctx context.Context) ([]api.Policy, error)
	// Offered says what a peer would be offered here now, and why no more. A whole ID need not be known.
	Offered(ctx context.Context, peer string) (api.Offered, error)
	// SetPolicy applies the change to the policy of that name, which it makes when there is none. The Server has
	// checked the form of what is in the change.
	SetPolicy(ctx context.Context, name string, change api.PolicyChange, dry api.DryRun) (api.Policy, error)
	// Undo takes back the last change that SetPolicy made since kithd started, or, when that was Undo's, brings it back. CodeConflict when there
	// is none, or the policy was changed since.
	Undo(ctx context.Context, dry api.DryRun) (api.Policy, error)
	// KeepAwake keeps this machine from being suspended, or lets it be again. The options are checked. CodeUnsupported where nothing suspends it that
	// could be kept from it, CodeConflict when no guest runs here that could end, or the battery is low.
	KeepAwake(ctx context.Context, options api.AwakeOptions) (api.Awake, error)

	Offloads(ctx context.Context) ([]api.Offload, error)
	// Offload makes the pods of a namespace eligible for peers and returns when the twins are there, or, when no
	// peer is connected, at once with the reason in Why. The options are checked and complete. Offloading an
	// offloaded namespace changes its options.
	Offload(ctx context.Context, namespace string, options api.OffloadOptions, report func(api.Progress)) (api.Offload, error)
	// Unoffload brings the pods home and takes the twins away. When that takes longer than it may, the error says what holds it;
	// it goes on by itself.
	Unoffload(ctx context.Context, namespace string, options api.UnoffloadOptions, report func(api.Progress)) error
	Guests(ctx context.Context) ([]api.Guest, error)
	// Volumes gives those of this cluster at peers, and of peers here.
	Volumes(ctx context.Context) ([]api.Volume, error)
	// MoveVolume has one of this cluster go to a peer, or home, or stay where it is when it is on its way. With options.Wait it returns when the
	// volume is there, else CodeConflict with the reason; without, when the move has begun. Sent again it waits for the move that is under way.
	MoveVolume(ctx context.Context, options api.MoveOptions, report func(api.Progress)) (api.Volume, error)
	// NotRunning tells why of each pod of this cluster, up to a thousand, that is neither ready nor done, the farthest from running first. It
	// reads no events: Why knows more.
	NotRunning(ctx context.Context) ([]api.Why, error)
	// Top tells what is used under each contract in force, those under which this cluster consumes first. That it is not known of one is
	// no error: Unknown says why.
	Top(ctx context.Context) ([]api.Top, error)
	// Why says why a pod is where it is, or does not run; of a workload the pod that is farthest from running. CodeNotFound.
	Why(ctx context.Context, options api.WhyOptions) (api.Why, error)

	// CheckTether says what a tether to the peer would mean, and what is in the way of it: that something is, is no error. A host:port
	// that is not known is added first, but with dry.
	CheckTether(ctx context.Context, peer string, dry api.DryRun) (api.TetherCheck, error)
	// Tether has the peer's cluster run this laptop and returns when it does: a host:port that is not known is added first. While the
	// peer's owner is asked, the code and what is to be confirmed are reported as with Ask. CodeConflict with all that is in the way;
	// CodeDeclined or CodeExpired as of the request. Called again while that switch is under way it follows it.
	Tether(ctx context.Context, options api.TetherOptions, report func(api.Progress)) (api.Status, error)
	// Untether takes this laptop back, from every step of a tether, and returns when it decides by itself again.
	Untether(ctx context.Context, options api.UntetherOptions, report func(api.Progress)) (api.Status, error)

	// Doctor looks for what keeps Kith from working, on this machine and on the way to the peer, or to all peers when
	// peer is "". Each finding is reported in a Progress; all of them are returned, also when some are failures.
	Doctor(ctx context.Context, peer string, report func(api.Progress)) ([]api.Finding, error)
	// FixFindings mends what is found of these names on this machine and is safe to be mended, and looks again. The names are checked;
	// one of which nothing is found, or nothing that is safe, is left out of the answer.
	FixFindings(ctx context.Context, fix api.DoctorFix, report func(api.Progress)) ([]api.Fixed, error)
	// Images lists the images of this laptop's container runtime. CodeUnsupported where Kith knows none.
	Images(ctx context.Context) ([]api.Image, error)
	// LoadImages takes the images of an archive in, a tar as docker save and podman save write it; name, if not "", is for the one
	// image of an archive that names none. CodeInvalid when it is no such archive.
	LoadImages(ctx context.Context, archive io.Reader, name string) ([]api.Image, error)
	// RemoveImage takes the name of an image away. CodeNotFound.
	RemoveImage(ctx context.Context, name string) error

	// BugReport writes a tar, compressed with gzip, of what helps to find out what is wrong, and of nothing that is secret.
	BugReport(ctx context.Context, to io.Writer) error
}
