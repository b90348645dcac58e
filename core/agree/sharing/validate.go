package sharing

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// FieldError is one thing Validate finds wrong: the field, its value, and what it may be.
type FieldError struct {
	Field, Value, Allowed string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %q is not allowed: it must be %s", e.Field, e.Value, e.Allowed)
}

// ValidityAllowed are the values of spec.contractValidity, in words.
const ValidityAllowed = "a duration from 1h to 87600h (ten years)"

// KeepAllowed are the values of spec.keepVolumes, in words.
const KeepAllowed = "a duration from 1h to 8760h (a year)"

// NoticeAllowed are the values of spec.notice, in words.
const NoticeAllowed = "a duration from 10s to 720h (thirty days)"

// AllProviders in spec.reofferFrom stands for all of them.
const AllProviders = "*"

// bytesPerSecond is the pattern of the custom resource.
var bytesPerSecond = regexp.MustCompile(`^[1-9][0-9]*(k|M|G|Ki|Mi|Gi)?$`)

// registry is the pattern of the custom resource.
var registry = regexp.MustCompile(`^(http://)?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?$`)

// whole is the pattern of the custom resource for amounts of devices.
var whole = regexp.MustCompile(`^[0-9]{1,9}$`)

// Validate says what is wrong with the policy: nil, or *FieldErrors joined, each naming its field and the
// allowed values. The API server checks much of it already; this serves callers that have not asked it yet.
func Validate(policy *v1alpha1.SharingPolicy) error {
	spec := &policy.Spec
	var errs []error
	bad := func(field, value, allowed string) { errs = append(errs, &FieldError{field, value, allowed}) }

	if len(spec.Amounts) == 0 {
		bad("spec.amounts", "", "at least cpu, memory and pods, each a quantity such as 2, 500m or 4Gi, or a share such as 50%")
	}
	checkAmounts(bad, "spec.amounts", spec.Amounts)
	checkAmounts(bad, "spec.reserve", spec.Reserve)
	checkAmounts(bad, "spec.maxPerPeer", spec.MaxPerPeer)
	if spec.Only != nil && (spec.Only.BatteryAbove < 0 || spec.Only.BatteryAbove > 99) {
		bad("spec.only.batteryAbove", fmt.Sprint(spec.Only.BatteryAbove), "a percentage from 1 to 99")
	}
	if spec.Only != nil && spec.Only.IdleFor != nil && (spec.Only.IdleFor.Duration < MinIdle || spec.Only.IdleFor.Duration > MaxIdle) {
		bad("spec.only.idleFor", spec.Only.IdleFor.Duration.String(), IdleAllowed)
	}
	if m := spec.MaxPeers; m != nil && (*m < 1 || *m > 1000) {
		bad("spec.maxPeers", fmt.Sprint(*m), "a number from 1 to 1000")
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Reserve)) {
		if ofFree(spec.Reserve[name]) {
			bad("spec.reserve."+name, string(spec.Reserve[name]), "a quantity, or a whole share of all there is from 0% to 100%")
		}
	}
	checkPrices(spec.Prices, bad)
	switch spec.PodSecurity {
	case "", v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted:
	default:
		bad("spec.podSecurity", string(spec.PodSecurity), "privileged, baseline or restricted")
	}
	if c := spec.DeviceRuntimeClass; c != "" && len(validation.IsDNS1123Label(c)) > 0 {
		bad("spec.deviceRuntimeClass", c, "the name of a RuntimeClass, such as nvidia")
	}
	for i, p := range spec.Peers {
		// A cluster ID is a valid DNS label once it is lower case, so one rule serves names and IDs.
		if len(validation.IsDNS1123Subdomain(strings.ToLower(p))) > 0 {
			bad(fmt.Sprintf("spec.peers[%d]", i), p, "the name of a Peer or a cluster ID")
		}
	}
	if spec.PeerSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(spec.PeerSelector); err != nil {
			bad("spec.peerSelector", metav1.FormatLabelSelector(spec.PeerSelector), "a label selector: "+err.Error())
		}
	}
	if spec.Namespaces != nil {
		for i, pattern := range spec.Namespaces.Reserved {
			if !isPattern(pattern) {
				bad(fmt.Sprintf("spec.namespaces.reserved[%d]", i), pattern, "the name of a namespace, in which a * stands for any characters")
			}
		}
	}
	for i, h := range spec.Hours {
		at := fmt.Sprintf("spec.hours[%d]", i)
		if _, err := minutes(h.From); err != nil || h.From == "24:00" {
			bad(at+".from", h.From, "a time of day from 00:00 to 23:59")
		}
		if _, err := minutes(h.To); err != nil || h.To == h.From {
			bad(at+".to", h.To, "a time of day from 00:00 to 24:00 other than when they begin")
		}
		for _, d := range h.Days {
			if !slices.Contains(api.Weekdays, string(d)) {
				bad(at+".days", string(d), "one of "+strings.Join(api.Weekdays, ", "))
			}
		}
	}
	if _, err := location(spec.TimeZone, time.UTC); err != nil {
		bad("spec.timeZone", spec.TimeZone, "the name of a time zone, such as Europe/Berlin")
	}
	if v := spec.ContractValidity; v != nil && (v.Duration < MinValidity || v.Duration > MaxValidity) {
		bad("spec.contractValidity", v.Duration.String(), ValidityAllowed)
	}
	if k := spec.KeepVolumes; k != nil && (k.Duration < contract.MinKeep || k.Duration > contract.MaxKeep) {
		bad("spec.keepVolumes", k.Duration.String(), KeepAllowed)
	}
	if n := spec.Notice; n != nil && (n.Duration < contract.MinNotice || n.Duration > contract.MaxNotice) {
		bad("spec.notice", n.Duration.String(), NoticeAllowed)
	}
	if w := spec.Wake; w != nil && (*w < 1 || *w > contract.MaxWake) {
		bad("spec.wake", fmt.Sprint(*w), fmt.Sprintf("a number of times a day, from 1 to %d", contract.MaxWake))
	}
	for i, p := range spec.ReofferFrom {
		if p != AllProviders && len(validation.IsDNS1123Subdomain(strings.ToLower(p))) > 0 {
			bad(fmt.Sprintf("spec.reofferFrom[%d]", i), p, "the name of a Peer, a cluster ID, or * for all that provide here")
		}
	}
	if spec.Tunnel == v1alpha1.AccessDeny && (spec.Reoffer == v1alpha1.AccessAllow || len(spec.ReofferFrom) > 0 || len(spec.Services) > 0) {
		bad("spec.tunnel", string(spec.Tunnel), "Allow where there is reoffer, reofferFrom or services: all of these need a tunnel")
	}
	if spec.Reoffer == v1alpha1.AccessAllow && len(spec.ReofferFrom) > 0 {
		bad("spec.reoffer", string(spec.Reoffer), "Deny where there is a reofferFrom: what is offered on from others goes on no further")
	}
	if spec.ReofferAs == v1alpha1.ReofferAsEach && len(spec.ReofferFrom) == 0 {
		bad("spec.reofferAs", string(spec.ReofferAs), "One where there is no reofferFrom: there is nobody to tell of")
	}
	if spec.Network != nil && spec.Network.Bandwidth != nil {
		for _, rate := range []struct{ field, is string }{{"ingress", string(spec.Network.Bandwidth.Ingress)}, {"egress", string(spec.Network.Bandwidth.Egress)}} {
			if _, ok := api.ParseBitRate(rate.is); !ok && rate.is != "" {
				bad("spec.network.bandwidth."+rate.field, rate.is, api.BitRateAllowed)
			}
		}
	}
	if _, ok := api.ParseMargin(spec.Margin); spec.Margin != "" && (!ok || len(spec.ReofferFrom) == 0) {
		bad("spec.margin", spec.Margin, api.MarginAllowed+", where there is a reofferFrom, and left out where there is none")
	}
	if spec.Images != nil {
		for i, r := range spec.Images.Registries {
			if !registry.MatchString(r) {
				bad(fmt.Sprintf("spec.images.registries[%d]", i), r, "a registry as it stands in names of images, such as ghcr.io or registry.lan:5000, with http:// before it if it has no TLS")
			}
		}
		if r := spec.Images.Rate; r != "" && !bytesPerSecond.MatchString(r) {
			bad("spec.images.rate", r, "bytes per second, such as 5M")
		}
		for i, p := range spec.Images.Present {
			if p == "" || strings.ContainsAny(p, " ,\t\n") {
				bad(fmt.Sprintf("spec.images.present[%d]", i), p, "the name of an image, in which * stands for anything, such as kith.dev/* or postgres:17")
			}
		}
	}
	return errors.Join(errs...)
}

func checkAmounts(bad func(field, value, allowed string), field string, amounts map[string]v1alpha1.Amount) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		class, storage := api.StorageClass(name)
		if !storage && !api.Countable(name) {
			bad(field, name, "a resource name such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io")
		}
		_, quantity, err := parse(amounts[name])
		switch {
		case err == nil && quantity == nil && class != "":
			bad(field+"."+name, string(amounts[name]), "a quantity such as 20Gi: of how much it would be a part is not known")
		case err != nil:
			bad(field+"."+name, string(amounts[name]), "a quantity such as 2, 500m or 4Gi, or a whole share from 0% to 100%")
		case quantity != nil && api.Extended(name) && !whole.MatchString(string(amounts[name])):
			bad(field+"."+name, string(amounts[name]), "a whole number, for devices are not divided, or a whole share from 0% to 100%")
		}
	}
}
