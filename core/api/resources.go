package api

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names of the resources that every cluster has. Others (nvidia.com/gpu, …) keep their Kubernetes name.
const (
	CPU              = "cpu"
	Memory           = "memory"
	Pods             = "pods"
	EphemeralStorage = "ephemeral-storage" // scratch space of pods, logs, images' writable layers
	Storage          = "storage"           // persistent volumes
)

// ofClass stands behind the name of a storage class in what a ResourceQuota calls storage of that class.
const ofClass = ".storageclass.storage.k8s.io/requests.storage"

// maxStorageClass bounds the name of a storage class that is shared, in bytes: with what is put before and behind it, it is still a name.
const maxStorageClass = 63

var storageClass = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// StorageOf names what volumes of a storage class take, as a ResourceQuota does: "fast.storageclass.storage.k8s.io/requests.storage". Of "", which
// stands for the default class, it is Storage.
func StorageOf(class string) string {
	if class == "" {
		return Storage
	}
	return class + ofClass
}

// StorageClass gives the class whose volumes take of a resource, "" for the default class; false for a resource that volumes take nothing of.
func StorageClass(resource string) (class string, is bool) {
	if resource == Storage {
		return "", true
	}
	class, is = strings.CutSuffix(resource, ofClass)
	if !is || !IsStorageClass(class) {
		return "", false
	}
	return class, true
}

// IsStorageClass reports whether a storage class of that name can be shared.
func IsStorageClass(name string) bool {
	return len(name) <= maxStorageClass && storageClass.MatchString(name)
}

// Lends reports whether amounts have any for volumes.
func Lends[A any](amounts map[string]A) bool {
	for name := range amounts {
		if _, is := StorageClass(name); is {
			return true
		}
	}
	return false
}

// Called is the name of a resource for people: "storage (fast)" for that of a storage class, else the name itself.
func Called(resource string) string {
	if class, is := StorageClass(resource); is && class != "" {
		return Storage + " (" + class + ")"
	}
	return resource
}

// InBytes reports whether a resource is counted in bytes.
func InBytes(resource string) bool {
	_, storage := StorageClass(resource)
	return storage || resource == Memory || resource == EphemeralStorage
}

// Resources maps a resource name to an amount in Kubernetes quantity syntax: {"cpu": "500m", "memory": "4Gi"}.
// In a Policy an amount may also be a share of what the machine has, "50%", or of what its owner's pods leave free of that, "50% of free".
type Resources map[string]string

// MarshalJSON implements json.Marshaler: nil is {}.
func (r Resources) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("{}"), nil
	}
	return plain(map[string]string(r))
}

// wellKnown is the order in which people expect resources to be named.
var wellKnown = []string{CPU, Memory, Pods, EphemeralStorage, Storage}

// Names gives the resource names, the well-known ones first, the others by alphabet.
func (r Resources) Names() []string {
	var names []string
	for _, n := range wellKnown {
		if _, ok := r[n]; ok {
			names = append(names, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(r)) {
		if !slices.Contains(wellKnown, n) {
			names = append(names, n)
		}
	}
	return names
}

// String is for people: "cpu 2, memory 4Gi".
func (r Resources) String() string {
	var b strings.Builder
	for i, n := range r.Names() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", Called(n), r[n])
	}
	return b.String()
}

// OfFree stands behind a percentage that is one of what the owner's own pods leave free, not of all there is: "50% of free".
const OfFree = " of free"

// Share is the percentage that all amounts of a policy have in common; "" when they differ, and when there are none.
func (r Resources) Share() (share string) {
	for _, amount := range r {
		if share != "" && amount != share || !strings.HasSuffix(amount, "%") {
			return ""
		}
		share = amount
	}
	return share
}

// quantity is the part of Kubernetes' quantity syntax that a SharingPolicy takes: no sign, no exponent.
// Source: the grammar in k8s.io/apimachinery/pkg/api/resource/quantity.go.
var quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$`)

// wholeOrPart is how much of an extended resource may be shared: devices are not divided.
var wholeOrPart = regexp.MustCompile(`^[0-9]{1,9}(%( of free)?)?$`)

var bytesWritten = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKMGTP])i?[bB]$`)

// allowedFor says what an amount may be; of one that is written as in 4GB, how Kubernetes writes it.
func allowedFor(amount string) string {
	if m := bytesWritten.FindStringSubmatch(amount); m != nil {
		return quantityAllowed + "; " + amount + " is written " + m[1] + strings.Replace(m[2], "K", "k", 1) + " (powers of 1000) or " + m[1] + strings.ToUpper(m[2]) + "i (powers of 1024)"
	}
	return quantityAllowed
}

const quantityAllowed = "a Kubernetes quantity such as 2, 500m or 4Gi"

// CheckAmount says whether amount is a quantity as people write them, not negative, of at most 32 bytes. The error
// is an *Error with CodeInvalid that names field.
func CheckAmount(field, amount string) error {
	if len(amount) > 32 || !quantity.MatchString(amount) {
		return Invalid(field, amount, allowedFor(amount))
	}
	return nil
}

// CheckPercent says whether share is a whole percentage from "0%" to "100%".
func CheckPercent(field, share string) error {
	digits, ok := strings.CutSuffix(share, "%")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n > 100 {
		return Invalid(field, share, "a whole percentage from 0% to 100%")
	}
	return nil
}

// CheckResources says whether every name and amount is well formed; percent allows shares ("50%") beside amounts. GPU is taken for a name.
func CheckResources(field string, r Resources, percent bool) error {
	if len(r) > 32 {
		return Invalid(field, fmt.Sprintf("%d resources", len(r)), "at most 32")
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		at := field + "." + name
		class, storage := StorageClass(name)
		if name != GPU && !storage && !Countable(name) {
			return Invalid(field, name, "a resource name such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io")
		}
		if percent && (name == GPU || Extended(name)) && !wholeOrPart.MatchString(r[name]) {
			return Invalid(at, r[name], "a whole number, or a percentage such as 50%")
		}
		if percent && class != "" && strings.Contains(r[name], "%") {
			return Invalid(at, r[name], "an amount such as 20Gi: of how much it would be a part is not known")
		}
		if part := strings.TrimSuffix(r[name], OfFree); percent && strings.HasSuffix(part, "%") {
			if CheckPercent(at, part) != nil {
				return Invalid(at, r[name], "a whole percentage from 0% to 100%")
			}
			continue
		}
		if err := CheckAmount(at, r[name]); err != nil {
			if percent {
				return Invalid(at, r[name], allowedFor(r[name])+", or a percentage such as 50%")
			}
			return err
		}
	}
	return nil
}
