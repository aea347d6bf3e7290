# SPDX-License-Identifier: Apache-2.0
"""Stage 7 of 9: QuantizedModel + tactics -> Plan. What the runtime executes, and the file that holds it."""
