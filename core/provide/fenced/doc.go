// Package fenced marks the nodes of this cluster on which guests may run, those with a working fence, by a label (v1alpha1.LabelFenced).
// core/provide/fence keeps the fence of one machine and reports its state; this package collects the states of all nodes, in the kithd that is the
// leader. core/provide/hosting binds guests to labelled nodes only, core/agree/supply counts no others, and the daemon shows which are left out, and why.
//
// It fails closed: a node whose state is unknown, or was good for too short a time, gets no guests. It must never change anything of a node
// but that label and the annotation beside it.
package fenced
