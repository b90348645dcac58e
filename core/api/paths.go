package api

import (
	"net/url"
	"strconv"
	"strings"
)

// Paths of the local API. The part in braces is a name, an ID or (for peers) a host:port, escaped as one segment.
const (
	PathVersion    = "/v1/version"               // GET Version
	PathStatus     = "/v1/status"                // GET Status
	PathSnapshot   = "/v1/snapshot"              // GET Snapshot; ?follow=true: lines of Snapshot, one per change
	PathKubeconfig = "/v1/kubeconfig"            // GET the caller's kubeconfig, application/yaml; ?direct=true: the administrator's of the cluster
	PathEvents     = "/v1/events"                // GET ?since=SEQ&follow=true: lines of Event
	PathPeers      = "/v1/peers"                 // GET []Peer; POST AddPeer → Peer
	PathPeer       = "/v1/peers/{peer}"          // GET Peer; DELETE forgets it, ?dryRun=true
	PathAsk        = "/v1/peers/{peer}/ask"      // POST PeerAsk → Peer, long
	PathConfirm    = "/v1/peers/{peer}/confirm"  // POST PeerConfirm → Peer
	PathWithdraw   = "/v1/peers/{peer}/withdraw" // POST → Peer
	PathWake       = "/v1/peers/{peer}/wake"     // POST → Waking
	PathEnd        = "/v1/peers/{peer}/end"      // POST with EndOptions as query → Peer, long
	PathOffered    = "/v1/peers/{peer}/offered"  // GET Offered: what this machine would offer it now, and why no more
	PathRequests   = "/v1/requests"              // GET []Request
	PathRequest    = "/v1/requests/{id}"         // GET an incoming Request
	PathAccept     = "/v1/requests/{id}/accept"  // POST Accept → Request
	PathDecline    = "/v1/requests/{id}/decline" // POST → Request
	PathContracts  = "/v1/contracts"             // GET []Contract
	PathContract   = "/v1/contracts/{contract}"  // GET Contract
	PathVerify     = "/v1/verify"                // POST Contract → VerifyResult
	PathReceipts   = "/v1/receipts"              // GET with ReceiptOptions as query → []Account
	PathReceipt    = "/v1/receipts/{contract}"   // GET ReceiptFile
	PathCatalogue  = "/v1/catalogue"             // GET with CatalogueOptions as query → []Listed
	PathPolicies   = "/v1/policies"              // GET []Policy
	PathPolicy     = "/v1/policies/{policy}"     // PATCH PolicyChange → Policy, ?dryRun=true
	PathUndo       = "/v1/undo"                  // POST takes back the last change of a policy → Policy, ?dryRun=true
	PathAwake      = "/v1/awake"                 // POST AwakeOptions → Awake
	PathOffloads   = "/v1/offloads"              // GET []Offload
	PathOffload    = "/v1/offloads/{namespace}"  // PUT OffloadOptions → Offload, DELETE with UnoffloadOptions as query; both long
	PathGuests     = "/v1/guests"                // GET []Guest
	PathVolumes    = "/v1/volumes"               // GET []Volume
	PathMove       = "/v1/volumes/move"          // POST MoveOptions → Volume, long
	PathTether     = "/v1/tether"                // GET ?peer=NAME → TetherCheck, ?dryRun=true adds no peer; POST TetherOptions → Status, long
	PathUntether   = "/v1/untether"              // POST UntetherOptions → Status, long
	PathDoctor     = "/v1/doctor"                // GET ?peer=NAME → []Finding, long
	PathDoctorFix  = "/v1/doctor/fix"            // POST DoctorFix → []Fixed, long
	PathDNSRecords = "/v1/dns-records"           // GET with DNSRecordsOptions as query → DNSRecords
	PathImages     = "/v1/images"                // GET []Image; POST ?name=NAME with an archive, application/x-tar → []Image; DELETE ?name=NAME
	PathWhy        = "/v1/why"                   // GET with WhyOptions as query → Why
	PathNotRunning = "/v1/not-running"           // GET []Why: of pods of this cluster that are neither ready nor done
	PathTop        = "/v1/top"                   // GET []Top
	PathWeb        = "/v1/web"                   // POST WebOptions → Web: opens the page
	PathBugReport  = "/v1/bugreport"             // GET a bug report, application/gzip: a tar of what bugreport's README.txt lists
)

// Limits and media types of the local API.
const (
	MaxBody = 1 << 20 // bytes of a request
	// Lines is the media type of streams: one JSON value per line. A long call answers so when the caller's Accept
	// header asks for it: lines of Progress, then {"result": …} or {"error": …}. Else it answers once, at the end.
	Lines = "application/x-ndjson"
)

// Path puts value into the braces of a path above.
func Path(path, value string) string {
	before, rest, _ := strings.Cut(path, "{")
	_, after, _ := strings.Cut(rest, "}")
	return before + url.PathEscape(value) + after
}

// DryRun has a call say what it would do, and write nothing: what it refuses, it refuses then, too. It is the query ?dryRun=true of the calls
// that take it; other calls refuse that.
type DryRun bool

// Query is what ParseDryRun reads.
func (d DryRun) Query() url.Values {
	if !d {
		return url.Values{}
	}
	return url.Values{QueryDryRun: {"true"}}
}

// QueryDryRun is its name in a query.
const QueryDryRun = "dryRun"

// ParseDryRun reads it; what is not there is false.
func ParseDryRun(q url.Values) (DryRun, error) {
	text := q.Get(QueryDryRun)
	if text == "" {
		return false, nil
	}
	dry, err := strconv.ParseBool(text)
	if err != nil {
		return false, Invalid(QueryDryRun, text, "true or false")
	}
	return DryRun(dry), nil
}
