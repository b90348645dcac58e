package api

import (
	"net/url"
	"strconv"
	"time"
)

// Strategy says where the pods of an offloaded namespace may run.
type Strategy string

// The strategies.
const (
	StrategyBoth   Strategy = "both"   // home and abroad, as the scheduler likes
	StrategyRemote Strategy = "remote" // only abroad
	StrategyLocal  Strategy = "local"  // only at home; services are reflected all the same
)

// Mapping says how the namespace is named at the peer.
type Mapping string

// The mappings.
const (
	MappingDefault  Mapping = "default"  // <name>-<short id>
	MappingSameName Mapping = "sameName" // the same name where its policy allows that, or not at all
)

// VolumePlace says where volumes of claims in an offloaded namespace may be.
type VolumePlace string

// The places.
const (
	VolumesHome     VolumePlace = "home"     // and pods that have claims
	VolumesAnywhere VolumePlace = "anywhere" // where the first pod goes that uses the claim; later ones go there
)

// WhenAsleep says what becomes of pods at a peer whose laptop goes to sleep.
type WhenAsleep string

// What becomes of them.
const (
	AsleepUsual WhenAsleep = ""     // they wait for as long as for any node that is not ready
	AsleepWait  WhenAsleep = "wait" // however long it takes
	AsleepMove  WhenAsleep = "move" // they are evicted, if a controller makes them again
)

// Offload is a namespace whose pods may run at peers.
type Offload struct {
	Namespace string       `json:"namespace"`
	Strategy  Strategy     `json:"strategy"`
	Mapping   Mapping      `json:"mapping"`
	Volumes   VolumePlace  `json:"volumes"`
	Spread    bool         `json:"spread,omitempty"`  // new pods are spread over home and peers
	Network   string       `json:"network,omitempty"` // NetworkNone: its pods may go to peers to which there is no network
	Peers     List[string] `json:"peers"`             // names; none means all that are connected
	Budget    *Budget      `json:"budget,omitempty"`  // nil: there is none
	Asleep    WhenAsleep   `json:"whenAsleep,omitempty"`
	Pods      OffloadPods  `json:"pods"`
	Twins     List[Twin]   `json:"twins"` // where it is now
	Why       string       `json:"why,omitempty"`
}

// OffloadPods counts the pods of an offloaded namespace.
type OffloadPods struct {
	Home   int `json:"home"`
	Abroad int `json:"abroad"`
}

// Twin is the namespace at one peer.
type Twin struct {
	Peer      string `json:"peer"`
	Namespace string `json:"namespace"` // its name there
	Ready     bool   `json:"ready"`
	Why       string `json:"why,omitempty"`
}

// OffloadOptions is the body of the call that offloads a namespace.
type OffloadOptions struct {
	Strategy Strategy     `json:"strategy,omitempty"` // default both
	Mapping  Mapping      `json:"mapping,omitempty"`  // default default
	Peers    List[string] `json:"peers"`
	Volumes  VolumePlace  `json:"volumes,omitempty"` // default home
	Spread   bool         `json:"spread,omitempty"`
	Network  string       `json:"network,omitempty"` // NetworkNone: its pods may also go to peers to which there is no network
	Budget   string       `json:"budget,omitempty"`  // as ReadBudget reads it; default none
	Asleep   WhenAsleep   `json:"whenAsleep,omitempty"`
}

// Check fills in the defaults and says whether the rest is well formed.
func (o *OffloadOptions) Check() error {
	switch o.Strategy {
	case "":
		o.Strategy = StrategyBoth
	case StrategyBoth, StrategyRemote, StrategyLocal:
	default:
		return Invalid("strategy", string(o.Strategy), "both, remote or local")
	}
	switch o.Mapping {
	case "":
		o.Mapping = MappingDefault
	case MappingDefault, MappingSameName:
	default:
		return Invalid("mapping", string(o.Mapping), "default or sameName")
	}
	switch o.Volumes {
	case "":
		o.Volumes = VolumesHome
	case VolumesHome, VolumesAnywhere:
	default:
		return Invalid("volumes", string(o.Volumes), "home or anywhere")
	}
	if err := checkNetwork(o.Network); err != nil {
		return err
	}
	switch o.Asleep {
	case AsleepUsual, AsleepWait, AsleepMove:
	default:
		return Invalid("whenAsleep", string(o.Asleep), "wait or move")
	}
	if o.Budget != "" {
		_, _, _, err := ReadBudget("budget", o.Budget)
		return err
	}
	return nil
}

// UnoffloadOptions say how the pods of a namespace are brought home; they are the query of the call.
type UnoffloadOptions struct {
	Force bool          // against PodDisruptionBudgets
	Wait  time.Duration // how long the call waits for the pods at most; 0 as long as it takes
	DeleteVolumes
	DryRun
}

// Query is what ParseUnoffloadOptions reads.
func (o UnoffloadOptions) Query() url.Values {
	q := o.DryRun.Query()
	o.DeleteVolumes.set(q)
	if o.Force {
		q.Set("force", "true")
	}
	if o.Wait > 0 {
		q.Set("wait", o.Wait.String())
	}
	return q
}

// ParseUnoffloadOptions reads them from a query; what is not there is false, or 0.
func ParseUnoffloadOptions(q url.Values) (o UnoffloadOptions, err error) {
	if text := q.Get("force"); text != "" {
		if o.Force, err = strconv.ParseBool(text); err != nil {
			return o, Invalid("force", text, "true or false")
		}
	}
	if text := q.Get("wait"); text != "" {
		if o.Wait, err = time.ParseDuration(text); err != nil || o.Wait < 0 {
			return o, Invalid("wait", text, "a time such as 90s or 5m")
		}
	}
	if o.DeleteVolumes, err = ParseDeleteVolumes(q); err != nil {
		return o, err
	}
	o.DryRun, err = ParseDryRun(q)
	return o, err
}

// DeleteVolumes has a call delete volumes at peers, and their data, that it would leave behind; else it refuses. It is the query
// ?deleteVolumes=true.
type DeleteVolumes bool

const queryDeleteVolumes = "deleteVolumes"

func (d DeleteVolumes) set(q url.Values) {
	if d {
		q.Set(queryDeleteVolumes, "true")
	}
}

// ParseDeleteVolumes reads it from a query; what is not there is false.
func ParseDeleteVolumes(q url.Values) (DeleteVolumes, error) {
	text := q.Get(queryDeleteVolumes)
	if text == "" {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, Invalid(queryDeleteVolumes, text, "true or false")
	}
	return DeleteVolumes(is), nil
}

// EndOptions say how a peering is ended; they are the query of the call. Volumes of this cluster at the peer are deleted, or left there, where
// the peer keeps them for some days; with neither the call refuses while there are any.
type EndOptions struct {
	DeleteVolumes
	LeaveVolumes bool
	DryRun
}

const queryLeaveVolumes = "leaveVolumes"

// Query is what ParseEndOptions reads.
func (o EndOptions) Query() url.Values {
	q := o.DryRun.Query()
	o.DeleteVolumes.set(q)
	if o.LeaveVolumes {
		q.Set(queryLeaveVolumes, "true")
	}
	return q
}

// ParseEndOptions reads them from a query; what is not there is false.
func ParseEndOptions(q url.Values) (o EndOptions, err error) {
	if o.DeleteVolumes, err = ParseDeleteVolumes(q); err != nil {
		return o, err
	}
	if text := q.Get(queryLeaveVolumes); text != "" {
		if o.LeaveVolumes, err = strconv.ParseBool(text); err != nil {
			return o, Invalid(queryLeaveVolumes, text, "true or false")
		}
	}
	if o.LeaveVolumes && bool(o.DeleteVolumes) {
		return o, &Error{Code: CodeInvalid, Message: "volumes are either deleted or left at the peer", Field: queryLeaveVolumes}
	}
	o.DryRun, err = ParseDryRun(q)
	return o, err
}

// Guest is a pod of a peer that runs here.
type Guest struct {
	Namespace  string    `json:"namespace"` // here
	Name       string    `json:"name"`
	Consumer   string    `json:"consumer"` // the peer's name
	ConsumerID string    `json:"consumerId"`
	For        string    `json:"for,omitempty"`   // the cluster for which the consumer has it, as the consumer says, where it offers on what it is granted: its name
	ForID      string    `json:"forId,omitempty"` // and its ID
	Phase      string    `json:"phase"`           // Pending, Running, Succeeded, Failed, Unknown; Refused when hosting said no
	Why        string    `json:"why,omitempty"`
	Node       string    `json:"node,omitempty"`
	Resources  Resources `json:"resources"` // what it requests
	Created    time.Time `json:"created,omitzero"`
}
