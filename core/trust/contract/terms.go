package contract

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"kith.dev/core/trust/wire"
)

// Bounds of what may stand in a document or an offer.
const (
	MaxResources      = 32  // entries of Resources, and of Prices
	MaxStorageClasses = 64  // entries
	MaxName           = 128 // bytes of the name a cluster gives itself
)

// The pod security levels (KEP-2579).
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// Terms are what is granted: a provider offers them, and the document repeats them word for word.
type Terms struct {
	// Resources by Kubernetes resource name (cpu, memory, ephemeral-storage, pods, nvidia.com/gpu, …), as
	// Kubernetes quantities that are not negative ("1500m", "4Gi").
	Resources map[string]string `json:"resources"`
	// PodSecurity is the level guests are held to: privileged, baseline or restricted.
	PodSecurity string `json:"podSecurity"`
	// Prices by resource name, for one unit of it (see Price) and one hour: a decimal number and a currency ("0.02 EUR"), which is the
	// same for all. What is not named is free.
	Prices map[string]string `json:"prices,omitempty"`
	// StorageClasses that claims may name.
	StorageClasses []string `json:"storageClasses,omitempty"`
	// KeepVolumes is for how many seconds the provider keeps what is in volumes after the end, unless the consumer deletes it; see Keeps. Left out it
	// is DefaultKeep, as in all documents of before there was such a term: one content has one form.
	KeepVolumes int64 `json:"keepVolumes,omitempty"`
	// Reoffer: the consumer may offer on to others what is granted. Left out it may not, as in all documents of before there was such a term.
	Reoffer bool `json:"reoffer,omitempty"`
	// Network is what there is between the clusters: NetworkNone, or, left out as in all documents of before there was such a term, a tunnel.
	Network string `json:"network,omitempty"`
	// Notice: the provider may lower Resources while the contract is in force, by a revision that it gives notice of so many seconds before. Left out it
	// may not, as in all documents of before there was such a term: what is granted stays until the contract is renewed.
	Notice int64 `json:"notice,omitempty"`
	// Wake is how often within a day the consumer may wake the provider's machine when that is suspended, as long as its last word before the suspend lets
	// it (core/trust/wake). Left out it may not, as in all documents of before there was such a term.
	Wake int64 `json:"wake,omitempty"`
}

// NetworkNone: there is no tunnel. The consumer's pods at the provider reach nothing of home, and nothing reaches them; what goes by the peer API goes on.
const NetworkNone = "none"

// DocumentVersion is that of a document with these terms: the first whose readers know all of them, so that one content has one form.
func (t Terms) DocumentVersion() string {
	if _, priced := t.Prices[Traffic]; t.KeepVolumes != 0 || t.Reoffer || t.Network != "" || t.Notice != 0 || t.Wake != 0 || priced {
		return Version2
	}
	return Version
}

// Bounds of a notice: below the shortest no consumer would hear of it in time, and no contract runs longer than the longest between two renewals.
const (
	MinNotice = 10 * time.Second
	MaxNotice = 30 * 24 * time.Hour
)

// NoticeTime is how long before it a lowering is told; 0 where nothing is lowered.
func (t Terms) NoticeTime() time.Duration { return time.Duration(t.Notice) * time.Second }

// NoticeOf is what Notice says for a time, of which 0 is none; what is out of bounds is the nearest that is within.
func NoticeOf(d time.Duration) int64 {
	if d == 0 {
		return 0
	}
	return int64(min(max(d, MinNotice), MaxNotice) / time.Second)
}

// MaxWake bounds Wake: a machine that is woken more often had better not be suspended.
const MaxWake = 24

// WakeOf is what Wake says for a number of times; what is out of bounds is the nearest that is within.
func WakeOf(times int32) int64 { return int64(min(max(times, 0), MaxWake)) }

// Bounds of how long the data of volumes is kept after the end of a contract, and what holds for one that says nothing of it.
const (
	MinKeep     = time.Hour
	MaxKeep     = 365 * 24 * time.Hour
	DefaultKeep = 7 * 24 * time.Hour
)

// Keeps is how long the data of volumes is kept after the end.
func (t Terms) Keeps() time.Duration {
	if t.KeepVolumes == 0 {
		return DefaultKeep
	}
	return time.Duration(t.KeepVolumes) * time.Second
}

// KeepFor is what KeepVolumes says for a time; what is out of bounds is the nearest that is within.
func KeepFor(d time.Duration) int64 {
	if d = min(max(d, MinKeep), MaxKeep).Truncate(time.Second); d == DefaultKeep {
		return 0
	}
	return int64(d / time.Second)
}

var (
	// A quantity as resource.ParseQuantity takes it, less signs and the spellings nobody writes (".5", "5.").
	quantity = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]{1,2})?$`)
	// A qualified name of Kubernetes: [DNS subdomain "/"] name.
	word      = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)
)

// Validate says what in the terms cannot be meant.
func (t Terms) Validate() error {
	if err := CheckResources(t.Resources); err != nil {
		return err
	}
	switch t.PodSecurity {
	case Privileged, Baseline, Restricted:
	default:
		return fmt.Errorf("podSecurity: %.32q is not one of %s, %s, %s", t.PodSecurity, Privileged, Baseline, Restricted)
	}
	if err := CheckPrices(t.Prices); err != nil {
		return err
	}
	if len(t.StorageClasses) > MaxStorageClasses {
		return fmt.Errorf("storageClasses: %d entries, at most %d are allowed", len(t.StorageClasses), MaxStorageClasses)
	}
	for i, class := range t.StorageClasses {
		if len(class) > 253 || !subdomain.MatchString(class) {
			return fmt.Errorf("storageClasses: %.40q is not the name of a storage class", class)
		}
		if slices.Contains(t.StorageClasses[:i], class) {
			return fmt.Errorf("storageClasses: %s is named twice", class)
		}
	}
	if k := t.KeepVolumes; k != 0 && (k < int64(MinKeep/time.Second) || k > int64(MaxKeep/time.Second)) {
		return fmt.Errorf("keepVolumes: %d s, want one hour to a year", k)
	} else if k == int64(DefaultKeep/time.Second) {
		return fmt.Errorf("keepVolumes: %d s is what is meant without it", k)
	}
	switch {
	case t.Network != "" && t.Network != NetworkNone:
		return fmt.Errorf("network: %.32q is not %s, and no other is said", t.Network, NetworkNone)
	case t.Network == NetworkNone && t.Reoffer:
		return errors.New("reoffer: guests that go on need a network, and this contract has none")
	}
	if n := t.Notice; n != 0 && (n < int64(MinNotice/time.Second) || n > int64(MaxNotice/time.Second)) {
		return fmt.Errorf("notice: %d s, want ten seconds to thirty days", n)
	}
	if t.Wake < 0 || t.Wake > MaxWake {
		return fmt.Errorf("wake: %d times a day, want 1 to %d", t.Wake, MaxWake)
	}
	return nil
}

// CheckResources checks names and quantities; none at all is fine.
func CheckResources(resources map[string]string) error {
	if len(resources) > MaxResources {
		return fmt.Errorf("resources: %d entries, at most %d are allowed", len(resources), MaxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if err := CheckQualified(name); err != nil {
			return fmt.Errorf("resources: %w", err)
		}
		if !quantity.MatchString(resources[name]) {
			return fmt.Errorf("resources: %s: %.40q is not an amount such as \"1500m\" or \"4Gi\"", name, resources[name])
		}
	}
	return nil
}

// CheckQualified checks a qualified name as Kubernetes gives resources and labels ("cpu", "nvidia.com/gpu").
func CheckQualified(name string) error {
	prefix, base, found := strings.Cut(name, "/")
	if !found {
		prefix, base = "", name
	}
	if !word.MatchString(base) || found && (len(prefix) > 253 || !subdomain.MatchString(prefix)) {
		return fmt.Errorf("%.40q is not a name such as \"cpu\" or \"nvidia.com/gpu\"", name)
	}
	return nil
}

// CheckName checks the name that a cluster gives itself: 1 to 128 bytes of text that can be shown on one line.
// What passes may still be anybody's name; the ID decides.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("name: has %d bytes, want 1 to %d", len(name), MaxName)
	}
	if !wire.Printable(name) {
		return fmt.Errorf("name: %.64q has characters that cannot be shown", name)
	}
	return nil
}
