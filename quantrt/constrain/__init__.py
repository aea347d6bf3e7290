# SPDX-License-Identifier: Apache-2.0
"""What the user says single layers have to be: which types they store, and in which precision they run."""
