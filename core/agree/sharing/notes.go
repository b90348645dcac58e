package sharing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Notes are sentences for the owner about parts of a policy that have no, or less, effect: amounts beyond what the nodes can allocate together, or
// beyond what the owner's own pods leave; a validity that cannot work; names of unknown peers. peers are those of this cluster.
func Notes(policy *v1alpha1.SharingPolicy, there supply.Supply, peers []*v1alpha1.Peer) []string {
	var notes []string
	there.Reserve = Reserve(policy, there)
	shared := Amounts(policy, there)
	for _, name := range essential { // without any of them nothing is offered at all
		amount, all := shared[name], there.Nodes[name]
		if !policy.Spec.Paused && all.Sign() > 0 && amount.Sign() <= 0 {
			notes = append(notes, fmt.Sprintf("it gives nothing to anybody, since of %s nothing is shared: `kith share 50%%` offers half of all", name))
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(policy.Spec.Amounts)) {
		all, known := there.Nodes[corev1.ResourceName(name)]
		percent, quantity, err := parse(policy.Spec.Amounts[name])
		if err == nil && api.Extended(name) && len(there.Nodes) > 0 && all.Sign() <= 0 && (quantity == nil && percent > 0 || quantity != nil && quantity.Sign() > 0) {
			notes = append(notes, fmt.Sprintf("no node here has %s now, so none of it is offered: its device plugin, which counts the devices, does not run or found none", name))
			continue
		}
		if class, is := api.StorageClass(name); err == nil && is && class != "" {
			switch {
			case quantity == nil:
				notes = append(notes, fmt.Sprintf("nobody knows how much there is of storage class %s, so no part of it is offered: name an amount, as in `kith share --storage %s=20Gi`", class, class))
			case classMissing(name, there):
				notes = append(notes, fmt.Sprintf("there is no storage class %s here, so none of it is offered", class))
			}
			continue
		}
		if err == nil && name == api.Storage && !known && len(there.Nodes) > 0 && quantity == nil {
			notes = append(notes, "no node here says how much it has for volumes, so no part of it is offered: name an amount, as in `kith share --storage 20Gi`")
			continue
		}
		if err == nil && quantity != nil && known && quantity.Cmp(all) > 0 {
			notes = append(notes, fmt.Sprintf("%s %s is more than this laptop has: at most %s will be offered", name, policy.Spec.Amounts[name], all.String()))
		}
		most := shared[corev1.ResourceName(name)]
		if left, _, known := there.Left(corev1.ResourceName(name)); known && left.Cmp(most) < 0 {
			if room := there.RoomFor(corev1.ResourceName(name)); room != nil && room.Cmp(most) < 0 {
				notes = append(notes, fmt.Sprintf("%s: the disk has room for %s of it, so of the %s shared at most %s will be promised anew; what was signed stays",
					name, room.String(), most.String(), left.String()))
				continue
			}
			own, kept := there.Own[corev1.ResourceName(name)], there.Reserve[corev1.ResourceName(name)]
			if kept.Sign() > 0 {
				notes = append(notes, fmt.Sprintf("%s: of the %s here your own pods request %s and %s stay free for you, so of the %s shared at most %s will be promised anew; what was signed stays",
					name, all.String(), own.String(), kept.String(), most.String(), left.String()))
				continue
			}
			notes = append(notes, fmt.Sprintf("%s: your own pods request %s of the %s here, so of the %s shared at most %s will be promised anew; what was signed stays",
				name, own.String(), all.String(), most.String(), left.String()))
		}
	}
	if v := policy.Spec.ContractValidity; v != nil && Validity(policy) != v.Duration {
		notes = append(notes, fmt.Sprintf("contractValidity %s cannot work, it must be %s: contracts run %s", v.Duration, ValidityAllowed, Validity(policy)))
	}
	if _, err := location(policy.Spec.TimeZone, time.UTC); err != nil && len(policy.Spec.Hours) > 0 {
		notes = append(notes, fmt.Sprintf("it offers nothing, since the time zone of its hours, %q, is not known here: it must be a name such as Europe/Berlin", policy.Spec.TimeZone))
	}
	if k := policy.Spec.KeepVolumes; k != nil && Keeps(policy) != k.Duration {
		notes = append(notes, fmt.Sprintf("keepVolumes %s cannot be, it must be %s: volumes are kept for %s", k.Duration, KeepAllowed, Keeps(policy)))
	}
	for _, entry := range policy.Spec.Peers {
		if _, err := identity.ParseID(entry); err == nil {
			continue
		}
		if !slices.ContainsFunc(peers, func(p *v1alpha1.Peer) bool { return names(entry, p) }) {
			notes = append(notes, fmt.Sprintf("no peer %s was accepted here, so that name stands for nobody", entry))
		}
	}
	return notes
}

// UnknownName is the error of Resolve: a name that stands for nobody whose key the owner accepted.
type UnknownName struct {
	Name string
	// ID is that of a Peer which has the name and was not accepted; empty when there is none.
	ID string
}

func (e *UnknownName) Error() string {
	return fmt.Sprintf("no peer %q was accepted here, and a name alone is no identity", e.Name)
}

// Resolve gives the IDs that names and IDs stand for, as a policy keeps them: a name could be another's tomorrow.
// The error is an *UnknownName.
func Resolve(refs []string, peers []*v1alpha1.Peer) ([]string, error) {
	var ids []string
	for _, ref := range refs {
		id, err := identity.ParseID(ref)
		if err != nil {
			i := slices.IndexFunc(peers, func(p *v1alpha1.Peer) bool { return p.Name == ref })
			if i < 0 {
				return nil, &UnknownName{Name: ref}
			}
			if id, err = identity.ParseID(peers[i].Spec.ID); err != nil || !Accepted(peers[i]) {
				return nil, &UnknownName{Name: ref, ID: peers[i].Spec.ID}
			}
		}
		if !slices.Contains(ids, id.String()) {
			ids = append(ids, id.String())
		}
	}
	return ids, nil
}
